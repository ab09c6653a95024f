"""``CostAwareWait``: what it learns, when it releases, and how it cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.balance.fleets import fleet, runs_of_fleets
from tidegate.base import ConfigError, Int64Array
from tidegate.scheduling import Balancer, Column, CostAwareWait, Decision
from tidegate.scheduling.balance import CostAwareState
from tidegate.scheduling.balance.step_cost import StepCost

DECODES = {"gen_real": 512, "decode_tokens": 512, "last_step_us": 81_200, "finished": 1}


def learned(fixed_us: int = 30_000, token_us: int = 100) -> StepCost:
    cost = StepCost()
    for tokens in (512, 1024, 512, 4096) * 50:
        cost = cost.after(tokens, fixed_us + token_us * tokens)
    return cost


def busy_state(rate: float = 0.14, ranks: int = 8) -> CostAwareState:
    """A fleet of known cost in which each rank ends ``rate`` sequences per step."""
    return CostAwareState(cost=learned(), busiest_tokens=0, rates=(int(rate * 2**24),) * ranks)


def prefill(requests: int, tokens: int = 800, first: int | None = None) -> dict[str, int]:
    first = requests if first is None else first
    total = requests * tokens
    return {"ctx": requests, "first": first, "ctx_tokens": total, "backlog_tokens": total, "waiting": first}


def decide(state: CostAwareState, rows: Int64Array, policy: CostAwareWait | None = None) -> Decision:
    return (policy or CostAwareWait()).decide(state, rows)[1]


@given(fixed_us=st.integers(0, 10**6), token_us=st.integers(1, 10**4))
def test_cost_of_a_step_is_learned_exactly_from_steps_on_a_line(fixed_us: int, token_us: int) -> None:
    cost = learned(fixed_us, token_us)

    assert cost.token_ps() == pytest.approx(token_us * 10**6, rel=1e-6)
    assert cost.step_ps(2_000) == pytest.approx((fixed_us + 2_000 * token_us) * 10**6, rel=1e-6)


def test_steps_of_one_size_count_as_half_tokens() -> None:
    cost = StepCost()
    for _ in range(100):
        cost = cost.after(500, 80_000)

    assert cost.token_ps() == pytest.approx(80_000 * 10**6 / (2 * 500), rel=1e-6)
    assert cost.step_ps(500) == pytest.approx(80_000 * 10**6, rel=1e-6)


def test_steps_that_always_take_the_same_make_tokens_free() -> None:
    cost = learned(fixed_us=30_000, token_us=0)

    assert cost.token_ps() == 0
    rows = fleet(DECODES | prefill(1), *[DECODES] * 7)
    assert decide(CostAwareState(cost, rates=(10**6,) * 8), rows) == Decision()


def test_times_of_other_steps_are_not_taken_for_a_line() -> None:
    cost = StepCost()
    for i in range(400):
        cost = cost.after(512 if i % 3 else 8192, 850_000 if i % 3 == 1 else 81_000)

    mean_tokens, mean_us = cost.tokens / cost.weight, cost.us / cost.weight
    assert cost.token_ps() == pytest.approx(mean_us * 10**6 / (2 * mean_tokens), rel=1e-6)


def test_prefill_of_one_rank_waits_for_the_others() -> None:
    rows = fleet(DECODES | prefill(1), *[DECODES] * 7)

    assert decide(busy_state(), rows) == Decision(hold=True)


def test_prefill_is_not_held_where_nobody_ends_soon() -> None:
    rows = fleet(DECODES | prefill(1), *[DECODES | {"finished": 0}] * 7)

    assert decide(busy_state(rate=0.0), rows) == Decision()


def test_equal_prefills_run_at_once() -> None:
    rows = fleet(*[DECODES | prefill(2)] * 8)

    assert decide(busy_state(), rows) == Decision()


def test_unequal_prefills_are_cut_to_what_all_can_fill() -> None:
    rows = fleet(DECODES | prefill(8), *[DECODES | prefill(2)] * 7)

    assert decide(busy_state(), rows) == Decision(max_tokens=512 + 1600)


def passes_held(policy: CostAwareWait, rows: Int64Array) -> int:
    state, held = busy_state(), 0
    state, decision = policy.decide(state, rows)
    while decision.hold:
        state, decision = policy.decide(state, rows)
        held += 1
    return held


def test_waiting_ends_when_it_has_cost_what_running_alone_wastes() -> None:
    silent = DECODES | {"last_step_us": 0}
    rows = fleet(silent | prefill(8), *[silent] * 7)

    held = passes_held(CostAwareWait(max_hold_iters=10**6), rows)

    # 7/8 of 6,400 tokens of 0.1 ms against 8 of 4,096 seats for a step of 81.2 ms, at weight 4/3
    assert held == pytest.approx(560 / (81.2 * 8 / 4096 * 4 / 3), rel=0.01)


def test_more_weight_on_latency_waits_less() -> None:
    silent = DECODES | {"last_step_us": 0}
    rows = fleet(silent | prefill(8), *[silent] * 7)

    held = [passes_held(CostAwareWait(weight, max_hold_iters=10**6), rows) for weight in (0.0, 0.5, 0.9, 1.0)]

    assert held[0] == pytest.approx(2 * held[1], rel=0.01)
    assert held[0] == pytest.approx(10 * held[2], rel=0.01)
    assert held[3] == 0


@pytest.mark.parametrize(("weight", "share"), [(0.0, 7680 // 16), (0.5, 7680 // 8), (0.9, 7680 * 10 // 16)])
def test_long_prompt_goes_on_by_a_share_of_its_chunk(weight: float, share: int) -> None:
    rows = fleet(DECODES | prefill(1, tokens=7680, first=0), *[DECODES] * 7)

    assert decide(busy_state(), rows, CostAwareWait(weight)) == Decision(max_tokens=512 + share)


def test_without_step_times_it_still_waits_for_others() -> None:
    silent = DECODES | {"last_step_us": 0}
    policy, state = CostAwareWait(), CostAwareState(rates=(2**21,) * 8)

    state, decision = policy.decide(state, fleet(silent | prefill(1), *[silent] * 7))

    assert decision == Decision(hold=True)
    assert state.cost.is_unknown


def test_account_is_settled_when_nothing_waits() -> None:
    policy, state = CostAwareWait(), busy_state()
    state, _ = policy.decide(state, fleet(DECODES | prefill(1), *[DECODES] * 7))
    assert state.account_ps > 0

    state, _ = policy.decide(state, fleet(*[DECODES] * 8))

    assert state.account_ps == 0


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.9])
@given(steps=runs_of_fleets())
def test_cut_leaves_room_beyond_the_decodes_and_later_chunks_are_never_held(
    weight: float, steps: list[Int64Array]
) -> None:
    balancer = Balancer(CostAwareWait(weight), 60)
    state = balancer.start()
    for rows in steps:
        state, decision = balancer.decide(state, rows)
        if decision.max_tokens is not None:
            assert decision.max_tokens > rows[:, Column.DECODE_TOKENS].max()
        if decision.hold:
            assert (rows[:, Column.CTX] == rows[:, Column.FIRST]).all()


@given(steps=runs_of_fleets())
def test_state_holds_integers_only(steps: list[Int64Array]) -> None:
    policy = CostAwareWait()
    state = policy.start()
    for rows in steps:
        state, _ = policy.decide(state, rows)
        cost = state.cost
        moments = (cost.weight, cost.tokens, cost.us, cost.tokens_tokens, cost.tokens_us, cost.us_us)
        numbers = (*moments, state.busiest_tokens, *state.rates, state.account_ps)
        assert {type(number) for number in numbers} == {int}


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True])
def test_illegal_weight_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match="latency_weight="):
        CostAwareWait(value)  # type: ignore[arg-type]  # the point of the test
