"""O18: requests that reserve only a part of what they need lock the pool. One tier: what is reserved is the whole."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request

A, Q, X = (
    make_request(name, [first + i for i in range(tokens - 40)], max_tokens=40)
    for name, first, tokens in (("A", 0, 1600), ("Q", 5000, 1200), ("X", 10_000, 1440))
)


def run_of(**config: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=8, max_seq_len=2048, tokens_per_block=16, pool_slots=(128,)
    )
    values = {"max_num_tokens": 256, "max_batch_size": 8, "max_partial_prefills": 4, **config}
    return PlanningRun(
        cache,
        SchedulerConfig(capacity_policy="guaranteed_no_evict", **values),  # type: ignore[arg-type]  # as given by each test
        vocab_size=1 << 20,
    )


@pytest.mark.parametrize("order", [(A, Q), (Q, A)])
def test_two_that_do_not_fit_together_finish_one_after_the_other(order: tuple[object, ...]) -> None:
    run = run_of()
    for request in order:
        run.submit(request)  # type: ignore[arg-type]  # a request
    outputs = run.run()

    assert [outputs[name].num_tokens for name in "AQ"] == [40, 40]
    assert all(plan.num_tokens > 0 for plan in run.plans)
    assert run.scheduler.statistics().suspended == 0


def test_one_that_fits_is_reached_behind_one_that_does_not() -> None:
    run = run_of()
    for request in (make_request("runner", 700, max_tokens=100), X, make_request("small", 300, max_tokens=40)):
        run.submit(request)
    plans = [run.step() for _ in range(5)]

    admitted = [entry.waiting.request.request_id for plan in plans for entry in plan.admissions]
    assert admitted == ["runner", "small"]
    assert run.run()["X"].num_overtakes == 1


def test_small_ones_do_not_eat_what_is_reserved() -> None:
    run = run_of()
    run.submit(A)
    run.step()  # 16 of 100 pages are taken
    for number in range(6):
        run.submit(make_request(f"local{number}", 200, max_tokens=40))
    outputs = run.run()

    assert run.scheduler.statistics().suspended == 0
    assert outputs["A"].num_tokens == 40
    others = [outputs[f"local{number}"].timing.admitted_s for number in range(6)]
    finished = outputs["A"].timing.finished_s
    assert sum(start is not None and start < finished for start in others) == 1  # 28 pages are left for 15 each
