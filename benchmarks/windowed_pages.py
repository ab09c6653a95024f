"""P5: how few pages a windowed group needs: those in use at peak, in a pool that holds no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import LAYERS, bookkeeping, prompt, windowed_layers
from tidegate.cache import KVCacheConfig, window_peak


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt through one windowed group of ``LAYERS`` layers."""

    tokens: int
    window: int
    block: int
    chunk: int

    @property
    def plain_peak(self) -> int:
        """Pages at peak when every block owns a page until the step that passes it has settled."""
        return max(self._blocks(end) - self._stale(begin) for begin, end in self._steps())

    @property
    def scratch_peak(self) -> int:
        """Slots at peak by the formula: live blocks plus the slots that a step's scratch blocks share."""
        peak = 0
        for begin, end in self._steps():
            shared = max(0, self._stale(end) - self._blocks(begin))
            live = self._blocks(end) - self._stale(begin) - shared
            peak = max(peak, live + -(-shared // LAYERS))
        return peak

    def _steps(self) -> list[tuple[int, int]]:
        ends = [*range(self.chunk, self.tokens, self.chunk), self.tokens]
        return list(zip([0, *ends], ends, strict=False))

    def _blocks(self, position: int) -> int:
        return -(-position // self.block)

    def _stale(self, history: int) -> int:
        return max(0, (history + 1 - self.window) // self.block)


EXAMPLE = Prefill(tokens=1024, window=128, block=32, chunk=1024)
LONG = Prefill(tokens=32768, window=128, block=64, chunk=2048)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which prefills are compared with the formula."""

    grid: tuple[Prefill, ...] = tuple(
        Prefill(tokens, window, block, chunk)
        for tokens in (1000, 1022, 1024, 4096)
        for window in (1, 32, 100, 128, 129)
        for block in (16, 32, 64)
        for chunk in (64, 256, 1000, 2048)
    )


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return the two named prefills and the comparison with the formula."""
    sizes = sizes or Sizes()
    vllm = PeerCall.of("vllm", "window_peak", block=LONG.block, chunk=LONG.chunk)
    sglang = PeerCall.of("sglang", "prefill", reps=1, page=LONG.block, chunk=LONG.chunk)
    return [
        _case(EXAMPLE, ()),
        _case(
            LONG,
            (
                Versus((vllm,), ("swa_peak",), 1.0, "swa_peak_blocks"),
                Versus((sglang,), ("swa_peak",), 1.0, "swa_peak_pages"),
            ),
        ),
        Case(
            bar="P5",
            what=f"largest difference from the formula over {len(sizes.grid)} prefills",
            unit="slots",
            limit=0.0,
            sample=lambda: [float(max(abs(slots_needed(one) - one.scratch_peak) for one in sizes.grid))],
            name="swa_peak_difference",
        ),
    ]


def _case(one: Prefill, versus: tuple[Versus, ...]) -> Case:
    return Case(
        bar="P5",
        what=f"peak of {one.tokens} tokens, W={one.window}, B={one.block}, chunk {one.chunk} "
        f"({one.plain_peak} without scratch)",
        unit="slots",
        limit=5.0,
        sample=lambda: [float(slots_needed(one))],
        name="swa_peak",
        keys={"window": one.window, "block": one.block, "tokens": one.tokens, "chunk": one.chunk},
        versus=versus,
    )


def slots_needed(one: Prefill) -> int:
    """Return the slots in use at peak, having made sure that the prefill gets through with no more.

    A cache refuses a pool in which no sequence could decode later; a pool is never made smaller than that.
    """
    needed = prefill(one, 2 * one.plain_peak + 16)
    assert needed is not None
    while prefill(one, max(needed, window_peak(one.window, one.block))) is None:
        needed += 1
    return needed


def prefill(one: Prefill, slots: int) -> int | None:
    """Prefill in a pool of ``slots`` slots, publishing; return those in use at peak, None when a step is short."""
    config = KVCacheConfig(
        layers=windowed_layers(window=one.window),
        max_sequences=1,
        max_seq_len=one.tokens,
        tokens_per_block=one.block,
        pool_slots=(slots,),
        max_chunk_tokens=one.chunk,
    )
    manager = bookkeeping(config)
    candidate = manager.candidate(prompt(one.tokens, seed=1))
    rows = np.empty(0, np.int64)
    for end in [*range(one.chunk, one.tokens, one.chunk), one.tokens]:
        quote = manager.quote()
        if not (quote.add(rows, np.array([end])) if len(rows) else quote.admit(candidate, end)):
            return None
        with manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        rows = reservation.rows
        manager.advance(rows, reservation.ends, np.array([-1], np.int32))
    return manager.statistics().pools[0].peak_in_use
