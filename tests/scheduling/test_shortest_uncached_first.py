"""The policy by which few uncached tokens go first, and nobody waits for ever."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import Plan, SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request

HEAD = list(range(500, 540))


def run_of(rows: int = 2, *, pages: int = 128, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": rows, "policy": "shortest_uncached_first", **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full()), max_sequences=rows, max_seq_len=512, tokens_per_block=4, pool_slots=(pages,)
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def admitted(plan: Plan) -> list[str]:
    return [entry.waiting.request.request_id for entry in plan.admissions]


def test_fewest_uncached_tokens_go_first_then_arrival() -> None:
    run = run_of(rows=1)
    for name, length in (("long", 30), ("short", 5), ("short too", 5), ("middle", 12)):
        run.submit(make_request(name, length, max_tokens=1))
    order = [name for _ in range(4) for name in admitted(run.step())]

    assert order == ["short", "short too", "middle", "long"]


def test_what_is_cached_does_not_count() -> None:
    run = run_of(rows=1)
    run.submit(make_request("warm", HEAD, max_tokens=1))
    run.run()
    run.submit(make_request("short", 9, max_tokens=1))
    run.submit(make_request("cached", [*HEAD, 1, 2], max_tokens=1))

    assert admitted(run.step()) == ["cached"]


def test_place_follows_what_was_seen_of_the_cache_since() -> None:
    run = run_of(rows=2, pages=32)
    run.submit(make_request("follower", [*HEAD, *range(20)], max_tokens=1))
    run.submit(make_request("owner", HEAD, max_tokens=1))
    assert admitted(run.step()) == ["owner"]
    run.submit(make_request("short", 50, max_tokens=1))
    held = run.manager.create([900 + number for number in range(80)])
    assert held.resize(80)
    assert run.scheduler.load().prefill_tokens == 60 + 50
    assert not run.step().admissions  # both are looked at and lack pages
    held.close()

    assert run.scheduler.load().prefill_tokens == 20 + 50
    assert admitted(run.step())[0] == "follower"


def test_long_one_goes_first_once_it_was_passed_over_too_often() -> None:
    run = run_of(rows=1, context_starvation_iterations=5)
    run.submit(make_request("long", 30, max_tokens=1))
    starts: list[str] = []
    for number in range(20):
        run.submit(make_request(f"short{number}", 3, max_tokens=1))
        starts += admitted(run.step())

    assert starts.index("long") == 5


def test_without_admissions_nobody_is_passed_over() -> None:
    run = run_of(rows=1, context_starvation_iterations=5)
    run.submit(make_request("runner", 3, max_tokens=30))
    run.step()
    run.submit(make_request("long", 30, max_tokens=1))
    run.submit(make_request("short", 3, max_tokens=1))
    while not (start := admitted(run.step())):
        pass

    assert start == ["short"]


def test_suspended_request_goes_before_all() -> None:
    run = run_of(rows=3, pages=8, headroom_blocks=0)
    run.submit(make_request("a", 7, max_tokens=12))
    run.submit(make_request("b", 15, max_tokens=8))
    while not run.step().victims:
        pass
    run.submit(make_request("tiny", 1, max_tokens=1))
    plan = run.step()

    assert plan.wait is not None
    assert plan.wait.request_id == "b"
