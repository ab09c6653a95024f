"""What holds whatever a policy says: no prefill waits for ever, and none waits when nothing else would run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from tidegate.base import ConfigError, Int64Array, check_integer, shown
from tidegate.scheduling.balance.policy import BalancePolicy, Decision, State
from tidegate.scheduling.balance.rank_row import Column


@dataclass(frozen=True, slots=True)
class Balancer(Generic[State]):
    """A policy within bounds. A prefill that was held ``max_hold_iters`` times runs, uncut."""

    policy: BalancePolicy[State]
    max_hold_iters: int

    def __post_init__(self) -> None:
        check_integer("max_hold_iters", self.max_hold_iters, 0, 2**31 - 1)

    def start(self) -> State:
        """Return the policy's state before the first exchange."""
        return self.policy.start()

    def decide(self, state: State, rows: Int64Array) -> tuple[State, Decision]:
        """Return the policy's next state, and its decision unless that would hold or cut what must run."""
        state, decision = _checked(self.policy, self.policy.decide(state, rows))
        if self._must_release(rows, decision):
            decision = Decision()
        return state, decision

    def _must_release(self, rows: Int64Array, decision: Decision) -> bool:
        if not rows[:, Column.CTX].any() or int(rows[:, Column.HELD_PASSES].max()) >= self.max_hold_iters:
            return True
        if decision == Decision() or rows[:, Column.GEN_REAL].any():
            return False
        later_chunks = rows[:, Column.CTX] > rows[:, Column.FIRST]
        return decision.holds_all_chunks or not bool(later_chunks.any())


def _checked(policy: BalancePolicy[State], answer: Any) -> tuple[State, Decision]:
    """Return what a policy decided; raises ``ConfigError`` for anything else: policies are other people's code."""
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Decision):
        raise ConfigError(
            f"{type(policy).__name__}.decide returned {shown(answer)}; it must return (state, Decision)", field="policy"
        )
    return answer[0], answer[1]
