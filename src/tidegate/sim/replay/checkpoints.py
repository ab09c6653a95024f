"""Where to keep window checkpoints: what each rule costs in pages and brings in hits."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from tidegate.base import BufferSpec, LayerSpec, check_integer, check_tuple
from tidegate.sim.replay.cached import CacheShape, replay
from tidegate.sim.replay.paths import Paths, block_paths
from tidegate.workload import Workload


def windowed_layers(
    num_layers: int = 62, window: int = 1024, full_every: int = 6, token_bytes: int = 8192
) -> tuple[LayerSpec, ...]:
    """Return layers of which each ``full_every``-th attends to all and the others to ``window`` positions.

    The defaults are Gemma 3 27B's (Gemma 3 report, 2025): five local layers to a global one, 16 key-value heads of 128
    in 16 bits.
    """
    buffers = (BufferSpec("kv", token_bytes),)
    return tuple(
        LayerSpec(i, "full_attention", buffers)
        if (i + 1) % full_every == 0
        else LayerSpec(i, "sliding_attention", buffers, window=window)
        for i in range(num_layers)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """``modes`` are values of ``window_checkpoints``; each is replayed at every quota (bytes; None: endless)."""

    modes: tuple[str, ...] = ("every_chunk", "every:4096", "every:16384", "every:65536", "declared")
    quota_bytes: tuple[int | None, ...] = (None,)
    layers: tuple[LayerSpec, ...] = windowed_layers()
    block_tokens: int = 64
    chunk_tokens: int = 2048
    eviction_policy: str = "lru"
    with_outputs: bool = True

    def __post_init__(self) -> None:
        check_tuple("modes", self.modes, str)
        for quota in self.quota_bytes:
            if quota is not None:
                check_integer("quota_bytes", quota, 1, 1 << 60)
        check_integer("block_tokens", self.block_tokens, 1, 1 << 20)
        check_integer("chunk_tokens", self.chunk_tokens, 1, 1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One mode at one quota. Pages by layer group: cached at the end, and the most at once."""

    mode: str
    quota_bytes: int | None
    hit_rate: float
    groups: tuple[str, ...]
    cached_pages: tuple[int, ...]
    peak_pages: tuple[int, ...]
    cached_bytes: int
    peak_bytes: int
    num_refused: int

    def to_row(self) -> dict[str, object]:
        """Return a plain row for JSON or CSV."""
        return asdict(self)


def compare_checkpoints(workload: Workload, spec: CheckpointSpec) -> tuple[CheckpointRow, ...]:
    """Replay a workload with every mode at every quota."""
    paths = block_paths(workload, spec.block_tokens, with_outputs=spec.with_outputs)
    return tuple(_row(paths, spec, mode, quota) for quota in spec.quota_bytes for mode in spec.modes)


def _row(paths: Paths, spec: CheckpointSpec, mode: str, quota: int | None) -> CheckpointRow:
    shape = CacheShape(
        layers=spec.layers,
        pool_slots=_endless(paths, spec) if quota is None else None,
        device_bytes=quota,
        eviction_policy=spec.eviction_policy,
        window_checkpoints=mode,
        chunk_tokens=spec.chunk_tokens,
    )
    result = replay(paths, shape)
    return CheckpointRow(
        mode=mode,
        quota_bytes=quota,
        hit_rate=result.hit_rate,
        groups=result.groups,
        cached_pages=result.cached_pages,
        peak_pages=result.peak_pages,
        cached_bytes=_bytes(result.cached_pages, result.page_bytes),
        peak_bytes=_bytes(result.peak_pages, result.page_bytes),
        num_refused=result.num_refused,
    )


def _bytes(pages: tuple[int, ...], page_bytes: tuple[int, ...]) -> int:
    return sum(count * size for count, size in zip(pages, page_bytes, strict=True))


def _endless(paths: Paths, spec: CheckpointSpec) -> tuple[int, ...]:
    """Slots of each group that are never too few: every block, or a window before the end of every chunk."""
    block = spec.block_tokens
    longest = int(paths.num_tokens.max(initial=1)) // block + 2
    chunks = -(-paths.num_tokens // spec.chunk_tokens) + 2 + np.array([len(one) for one in paths.declared], np.int64)
    slots: dict[int | None, int] = {None: paths.num_nodes + longest}
    for layer in spec.layers:
        if layer.window is not None:
            width = -(-layer.window // block) + 2
            kept = int(np.minimum(chunks * width, paths.num_tokens // block + width).sum())
            slots[layer.window] = kept + longest + width
    kinds = dict.fromkeys(layer.window for layer in spec.layers)
    return tuple(slots[kind] for kind in kinds)
