"""What holds under any policy: bounds, progress, and equal decisions from equal rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.scheduling.balance.fleets import counts, fleet, runs_of_fleets, would_stand_still
from tidegate.base import ConfigError, Int64Array
from tidegate.scheduling import BalancePolicy, Balancer, Column, CostAwareWait, Decision, FixedWait, NoBalance

BOUND = 5


@dataclass(frozen=True)
class Always:
    """A user's policy that decides the same for ever."""

    decision: Decision

    def start(self) -> int:
        return 0

    def decide(self, state: int, rows: Int64Array) -> tuple[int, Decision]:
        return state + 1, self.decision


HOLDS, CUTS, HOLDS_ALL = (
    Always(Decision(hold=True)),
    Always(Decision(max_tokens=1)),
    Always(Decision(hold=True, holds_all_chunks=True)),
)
POLICIES: list[BalancePolicy[Any]] = [
    FixedWait(6, 50, 10),
    FixedWait(6, 50, 10, replay=True),
    CostAwareWait(0.0),
    CostAwareWait(max_hold_iters=3),
    HOLDS,
    CUTS,
    HOLDS_ALL,
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)


def decisions(balancer: Balancer[Any], steps: list[Int64Array]) -> Iterator[tuple[Int64Array, Decision]]:
    """Decide for each step, with ``HELD_PASSES`` counted as a runtime does."""
    state, ages = balancer.start(), [0] * len(steps[0])
    for step in steps:
        rows = step.copy()
        rows[:, Column.HELD_PASSES] = ages
        state, decision = balancer.decide(state, rows)
        yield rows, decision
        ages = [age + 1 if is_held(row, decision) else 0 for age, row in zip(ages, rows, strict=True)]


def is_held(row: Int64Array, decision: Decision) -> bool:
    """Whether a first chunk of the rank (with ``holds_all_chunks``, any) does not run; cuts are to single tokens."""
    holdable = row[Column.CTX] if decision.holds_all_chunks else row[Column.FIRST]
    no_room = decision.max_tokens is not None and decision.max_tokens <= row[Column.DECODE_TOKENS]
    return bool(holdable > 0 and (decision.hold or no_room))


@every_policy
@given(steps=runs_of_fleets())
@example(steps=[counts([1, 0], [2, 2])] * 40)
@example(steps=[counts([1, 1], [2, 2])] * 40)
def test_no_prefill_is_held_past_the_bound(policy: BalancePolicy[Any], steps: list[Int64Array]) -> None:
    for rows, decision in decisions(Balancer(policy, BOUND), steps):
        assert rows[:, Column.HELD_PASSES].max() <= BOUND
        if rows[:, Column.HELD_PASSES].max() == BOUND:
            assert decision == Decision()


@every_policy
@given(steps=runs_of_fleets())
@example(steps=[counts([1, 0], [0, 0], [1, 1])] * 3)
@example(steps=[counts([1, 0], [0, 0])] * 3)
def test_nothing_is_held_when_nothing_else_would_run(policy: BalancePolicy[Any], steps: list[Int64Array]) -> None:
    for rows, decision in decisions(Balancer(policy, BOUND), steps):
        if would_stand_still(rows):
            assert decision == Decision()


@given(steps=runs_of_fleets())
def test_all_chunks_are_never_held_when_no_rank_decodes(steps: list[Int64Array]) -> None:
    for rows, decision in decisions(Balancer(HOLDS_ALL, BOUND), steps):
        assert not decision.hold or rows[:, Column.GEN_REAL].any()


@every_policy
@given(steps=runs_of_fleets(12))
def test_equal_rows_decide_alike_in_any_layout(policy: BalancePolicy[Any], steps: list[Int64Array]) -> None:
    def strided(rows: Int64Array) -> Int64Array:
        wide = np.zeros((2 * rows.shape[0], 2 * rows.shape[1]), dtype=np.int64)
        wide[::2, ::2] = rows
        return wide[::2, ::2]

    def narrow(rows: Int64Array) -> Int64Array:
        return rows.astype(np.int32)

    layouts: list[Callable[[Int64Array], Int64Array]] = [np.ascontiguousarray, np.asfortranarray, strided, narrow]

    found = []
    for layout in layouts:
        state, taken = policy.start(), []
        for rows in steps:
            state, decision = policy.decide(state, layout(rows))
            taken.append((state, decision))
        found.append(repr(taken))

    assert len(set(found)) == 1


@every_policy
@given(steps=runs_of_fleets(12))
def test_deciding_changes_no_rows(policy: BalancePolicy[Any], steps: list[Int64Array]) -> None:
    state = policy.start()
    for rows in steps:
        rows.flags.writeable = False
        state, _ = policy.decide(state, rows)


@every_policy
def test_plan_without_prefills_is_left_alone(policy: BalancePolicy[Any]) -> None:
    balancer = Balancer(policy, BOUND)

    assert balancer.decide(balancer.start(), counts([0, 0], [2, 0]))[1] == Decision()


def test_running_prefill_elsewhere_lets_a_first_chunk_wait() -> None:
    rows = fleet({"ctx": 1, "first": 1, "ctx_tokens": 9}, {"ctx": 1, "ctx_tokens": 9})

    assert Balancer(HOLDS, BOUND).decide(0, rows)[1].hold
    assert not Balancer(HOLDS_ALL, BOUND).decide(0, rows)[1].hold


def test_policy_advances_although_it_is_overruled() -> None:
    state, decision = Balancer(HOLDS, BOUND).decide(7, counts([1, 0], [0, 0]))

    assert (state, decision) == (8, Decision())


@given(steps=runs_of_fleets(8))
def test_no_balance_lets_all_run(steps: list[Int64Array]) -> None:
    assert all(decision == Decision() for _, decision in decisions(Balancer(NoBalance(), BOUND), steps))


@given(st.integers(max_value=0))
def test_limit_without_a_token_is_refused(max_tokens: int) -> None:
    with pytest.raises(ConfigError, match="max_tokens="):
        Decision(max_tokens=max_tokens)
