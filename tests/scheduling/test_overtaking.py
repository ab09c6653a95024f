"""Who may pass a request that cannot run, how often, and what is counted of it."""

from __future__ import annotations

from typing import Any

from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import Plan, SchedulerConfig
from tidegate.scheduling.balance import Decision
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request


def run_of(pages: int, *, rows: int = 8, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": rows, "headroom_blocks": 0, **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full()), max_sequences=rows, max_seq_len=512, tokens_per_block=4, pool_slots=(pages,)
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def admitted(plan: Plan) -> list[str]:
    return [entry.waiting.request.request_id for entry in plan.admissions]


def blocked(**config: Any) -> PlanningRun:
    """Return a run in which ``large`` waits for 6 of 8 pages and ``holder`` keeps 3 for some steps."""
    run = run_of(8, **config)
    run.submit(make_request("holder", 10, max_tokens=3))
    run.step()
    run.submit(make_request("large", 22, max_tokens=2))
    return run


def test_small_request_passes_and_is_counted_once() -> None:
    run = blocked()
    run.submit(make_request("small", 3, max_tokens=1))
    plans = [run.scheduler.plan() for _ in range(3)]
    plan = run.step()

    assert admitted(plan) == ["small"]
    assert plan.admissions[0].overtaken == ("large",)
    assert all(plan.decisions() == other.decisions() for other in plans)
    assert run.scheduler.statistics().overtakes == 1
    assert run.run()["large"].num_overtakes == 1


def test_bound_holds_within_one_plan_and_across_plans() -> None:
    run = blocked(max_overtakes=3)
    run.submit(make_request("a", 3, max_tokens=1))
    run.submit(make_request("b", 3, max_tokens=1))
    first = run.step()
    for name in "cd":
        run.submit(make_request(name, 3, max_tokens=1))
    second = run.step()

    assert (admitted(first), admitted(second)) == (["a", "b"], ["c"])
    assert run.run()["large"].num_overtakes == 3


def test_nobody_passes_one_that_was_suspended() -> None:
    run = run_of(8)
    run.submit(make_request("a", 7, max_tokens=20))
    run.submit(make_request("b", 15, max_tokens=8))
    while not run.step().victims:
        pass
    run.submit(make_request("tiny", 1, max_tokens=1))
    plan = run.step()

    assert plan.wait is not None
    assert plan.wait.request_id == "b"
    assert run.supply[0] > 0
    assert not plan.admissions


def test_who_waits_for_anything_but_pages_is_not_passed() -> None:
    run = run_of(64, max_chunk_tokens=16, max_partial_prefills=1)
    run.submit(make_request("a", 40))
    run.submit(make_request("b", 40))
    run.submit(make_request("c", 2))

    assert admitted(run.step()) == ["a"]


def test_overtakes_of_a_held_admission_are_not_counted() -> None:
    run = blocked()
    run.submit(make_request("small", 3, max_tokens=1))
    plan = run.scheduler.plan()
    rest = run.scheduler.restrict(plan, Decision(hold=True))
    run.scheduler.note(rest)

    assert rest.held == ("small",)
    assert run.scheduler.statistics().overtakes == 0


def test_passes_a_first_chunk_was_held_are_counted_until_it_starts() -> None:
    run = run_of(64)
    run.submit(make_request("a", 8))
    run.submit(make_request("b", 8))
    scheduler = run.scheduler
    for expected in range(3):
        plan = scheduler.plan()
        assert plan.most_held_passes == expected
        scheduler.note(scheduler.restrict(plan, Decision(hold=True)))
    assert scheduler.plan().most_held_passes == 3
    run.step()
    run.submit(make_request("c", 8))

    assert scheduler.plan().most_held_passes == 0


def test_counts_do_not_outlive_their_request() -> None:
    run = blocked()
    run.submit(make_request("small", 3, max_tokens=1))
    run.step()
    ended = run.scheduler.finish("large", FinishReason.ABORTED, now=0.0)
    assert ended is not None
    assert ended.num_overtakes == 1
    run.submit(make_request("large", 22, max_tokens=2))

    assert run.run()["large"].num_overtakes == 0


def test_probes_of_requests_that_cannot_run_are_bounded() -> None:
    run = blocked(extra_probes=2, rows=8)
    for number in range(20):
        run.submit(make_request(f"large {number}", 22, max_tokens=2))
    plan = run.step()

    assert len(plan.seen) == 3
