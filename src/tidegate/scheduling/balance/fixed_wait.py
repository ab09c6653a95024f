"""Hold prefills for a fixed number of steps: the policy that users of TensorRT-LLM know."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import Int64Array, check_bool, check_integer
from tidegate.scheduling.balance.policy import Decision
from tidegate.scheduling.balance.rank_row import Column


@dataclass(frozen=True, slots=True)
class FixedWaitState:
    """Steps in a row that waited for other ranks, and steps that waited for more after all ranks had a prefill."""

    wait: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class FixedWait:
    """Holds prefills until every rank has one, then ``batching_wait_iters`` steps more to gather several.

    Prefills that not all ranks share are released at step ``timeout_iters``: they are held one step less. Only real
    decodes count and only first chunks are held; while there is none to hold, the wait starts over. ``replay`` does as
    the original in every detail: padding counts as a decode, every chunk is held, no counter starts over.
    """

    max_batch_size: int
    timeout_iters: int = 50
    batching_wait_iters: int = 10
    replay: bool = False

    def __post_init__(self) -> None:
        check_integer("max_batch_size", self.max_batch_size, 1, 2**31 - 1)
        check_integer("timeout_iters", self.timeout_iters, 0, 2**31 - 1)
        check_integer("batching_wait_iters", self.batching_wait_iters, 0, 2**31 - 1)
        check_bool("replay", self.replay)

    def start(self) -> FixedWaitState:
        """Return both counters at 0."""
        return FixedWaitState()

    def decide(self, state: FixedWaitState, rows: Int64Array) -> tuple[FixedWaitState, Decision]:
        """Advance the counters by a step."""
        if not self.replay and not rows[:, Column.FIRST].any():
            return FixedWaitState(0, state.batch), Decision()
        generations = rows[:, Column.GEN_REAL]
        if self.replay:
            generations = generations + rows[:, Column.GEN_PAD]
        all_prefill = bool((rows[:, Column.CTX] > 0).all())
        all_decode = bool((generations > 0).all())
        if all_prefill and bool((generations < self.max_batch_size).all()):
            return self._aligned(state, all_decode)
        if state.wait + 1 >= self.timeout_iters or not all_decode:
            return FixedWaitState(0, state.batch), Decision()
        return FixedWaitState(state.wait + 1, state.batch), self._hold()

    def _aligned(self, state: FixedWaitState, all_decode: bool) -> tuple[FixedWaitState, Decision]:
        if all_decode and state.batch < self.batching_wait_iters:
            return FixedWaitState(0, state.batch + 1), self._hold()
        return FixedWaitState(0, 0 if all_decode else state.batch), Decision()

    def _hold(self) -> Decision:
        return Decision(hold=True, holds_all_chunks=self.replay)
