"""O13: waiting to fill a batch delayed every decode step, and arrivals pushed the deadline back."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import Request
from tidegate.scheduling import Plan, SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def run_of(**config: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=8, max_seq_len=256, tokens_per_block=4, pool_slots=(400,)
    )
    values = {"max_num_tokens": 64, "max_batch_size": 8, **config}
    return PlanningRun(cache, SchedulerConfig(**values))  # type: ignore[arg-type]  # as given by each test


def arrive(run: PlanningRun, name: str, **fields: object) -> None:
    run.submit(make_request(name, 8, arrival_s=run.clock.now(), **fields))


def started(plan: Plan) -> list[str]:
    return [entry.waiting.request.request_id for entry in plan.admissions]


def decoding(run: PlanningRun, count: int) -> None:
    for number in range(count):
        arrive(run, f"d{number}", max_tokens=60)
    for _ in range(8):
        run.step()
    assert run.scheduler.statistics().running == count


def test_running_requests_get_a_token_in_every_step_though_the_batch_is_not_full() -> None:
    run = run_of(batch_wait_timeout_ms=50)
    decoding(run, 7)

    assert [len(run.step().decodes) for _ in range(20)] == [7] * 20


def test_arrivals_within_the_wait_start_together() -> None:
    run = run_of(batch_wait_timeout_ms=50)
    starts: dict[str, float] = {}
    for step in range(10):
        if step in (0, 2, 4):
            arrive(run, f"r{step}")
        now = run.clock.now()
        starts |= dict.fromkeys(started(run.step()), now)

    assert len(set(starts.values())) == 1
    assert starts["r0"] == pytest.approx(0.05)
    assert starts.keys() == {"r0", "r2", "r4"}


def test_later_arrivals_do_not_push_the_deadline_back() -> None:
    run = run_of(batch_wait_timeout_ms=50)
    for step in range(10):
        arrive(run, f"r{step}")
        now = run.clock.now()
        if started(run.step()):
            break

    assert now == pytest.approx(0.05)


def test_a_full_batch_does_not_wait() -> None:
    run = run_of(batch_wait_timeout_ms=50)
    for number in range(8):
        arrive(run, f"r{number}")

    assert len(started(run.step())) == 8


def test_held_by_ratio_for_as_many_steps_as_said_while_decodes_go_on() -> None:
    run = run_of(batch_wait_timeout_iters=5, batch_wait_max_tokens_ratio=0.5)
    decoding(run, 3)
    arrive(run, "late")
    plans = [run.step() for _ in range(6)]

    assert [len(plan.decodes) for plan in plans] == [3] * 6
    assert [plan.held for plan in plans] == [("late",)] * 5 + [()]
    assert started(plans[5]) == ["late"]


def test_enough_tokens_are_not_held() -> None:
    run = run_of(batch_wait_timeout_iters=5, batch_wait_max_tokens_ratio=0.5)
    decoding(run, 3)
    for number in range(3):
        arrive(run, f"late{number}")
    held = run.step()
    arrive(run, "late3")

    assert (started(held), len(held.held)) == ([], 3)  # 3 + 24 tokens of 32
    assert len(started(run.step())) == 4


def test_the_count_begins_anew_after_a_release() -> None:
    run = run_of(batch_wait_timeout_iters=2, batch_wait_max_tokens_ratio=0.5)
    decoding(run, 3)
    arrive(run, "a")
    [run.step() for _ in range(3)]
    arrive(run, "b")

    assert [len(run.step().held) for _ in range(3)] == [1, 1, 0]


def test_nothing_is_held_beside_prefills_alone() -> None:
    run = run_of(
        batch_wait_timeout_iters=5, batch_wait_max_tokens_ratio=0.9, max_chunk_tokens=8, max_partial_prefills=3
    )
    run.submit(make_request("long", 40))
    run.step()
    arrive(run, "late")

    assert started(run.step()) == ["late"]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"batch_wait_timeout_iters": 5},
        {"batch_wait_max_tokens_ratio": 0.9},
    ],
)
def test_no_wait_without_both_knobs(config: dict[str, object]) -> None:
    run = run_of(**config)
    decoding(run, 3)
    arrive(run, "late")

    assert started(run.step()) == ["late"]


def test_planning_twice_counts_once() -> None:
    run = run_of(batch_wait_timeout_iters=2, batch_wait_max_tokens_ratio=0.5)
    decoding(run, 3)
    arrive(run, "late")
    plans = [run.scheduler.plan(now=run.clock.now()).decisions() for _ in range(5)]

    assert len(set(map(repr, plans))) == 1
    assert [len(run.step().held) for _ in range(3)] == [1, 1, 0]


def test_session_says_until_when_it_waits_and_reports_no_stall() -> None:
    run = ServingRun(
        stacked(full()),
        pool_slots=(64,),
        tokens_per_block=4,
        max_seq_len=64,
        max_batch_size=4,
        batch_wait_timeout_ms=50,
    )
    request: Request = make_request("a", 8)
    run.submit(request)
    run.step()

    assert run.session.timer_s == pytest.approx(0.05)
    run.session.rest()
    assert run.clock.now() == pytest.approx(0.05)
    assert run.run()["a"].tokens.tolist() == run.expected(request)
    assert run.session.timer_s is None


def test_rest_is_no_longer_than_asked() -> None:
    run = ServingRun(
        stacked(full()),
        pool_slots=(64,),
        tokens_per_block=4,
        max_seq_len=64,
        max_batch_size=4,
        batch_wait_timeout_ms=50,
    )
    run.session.rest()
    assert run.clock.now() == 0.0
    run.submit(make_request("a", 8))
    run.step()
    before = run.clock.now()
    run.session.rest(0.01)

    assert run.clock.now() == pytest.approx(before + 0.01)
