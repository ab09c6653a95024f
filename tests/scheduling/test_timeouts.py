"""Requests past their deadline end, in whatever phase; without deadlines nothing is looked at."""

from __future__ import annotations

import pytest

from tidegate.base import RequestTooLong
from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import SchedulerConfig
from tidegate.scheduling.deadlines import Deadlines
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def run_of(rows: int = 2, **config: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=rows, max_seq_len=128, tokens_per_block=4, pool_slots=(32,)
    )
    values = {"max_num_tokens": 64, "max_batch_size": rows, **config}
    return PlanningRun(cache, SchedulerConfig(**values))  # type: ignore[arg-type]  # as given by each test


def ids(run: PlanningRun, now: float) -> list[tuple[str, FinishReason]]:
    return [(output.request_id, output.finish_reason) for output in run.scheduler.expire(now)]


def test_waiting_and_running_requests_end_when_their_time_is_over() -> None:
    run = run_of(rows=1)
    run.submit(make_request("running", 8, max_tokens=50, timeout_s=3.0, arrival_s=1.0))
    run.submit(make_request("waiting", 8, timeout_s=2.0, arrival_s=1.0))
    run.submit(make_request("patient", 8))
    run.step()

    assert ids(run, 2.99) == []
    assert ids(run, 3.0) == [("waiting", FinishReason.ABORTED)]
    assert ids(run, 9.0) == [("running", FinishReason.ABORTED)]
    assert run.scheduler.statistics().expired == 2
    assert list(run.run()) == ["patient"]


def test_one_that_ended_in_time_is_not_ended_again() -> None:
    run = run_of()
    run.submit(make_request("a", 8, max_tokens=2, timeout_s=5.0))
    run.run()
    run.submit(make_request("a", 8, max_tokens=2, timeout_s=50.0))

    assert ids(run, 6.0) == []
    assert ids(run, 50.0) == [("a", FinishReason.ABORTED)]


def test_suspended_request_expires_with_what_it_had() -> None:
    run = run_of(headroom_blocks=0, max_num_tokens=128)
    run.submit(make_request("a", 55, max_tokens=30))
    run.submit(make_request("b", 55, max_tokens=30, timeout_s=9.0))
    while not run.step().victims:
        pass
    (output,) = run.scheduler.expire(9.0)

    assert output.num_tokens > 0
    assert output.num_suspensions == 1
    run.run()


@pytest.mark.parametrize("overlap", [False, True])
def test_expired_in_flight_gives_its_pages_back_once(overlap: bool) -> None:
    run = ServingRun(
        stacked(full()), pool_slots=(32,), tokens_per_block=4, max_seq_len=64, max_batch_size=4, overlap=overlap
    )
    requests = [make_request("a", 8, max_tokens=20, timeout_s=0.055), make_request("b", 8, max_tokens=20)]
    for request in requests:
        run.submit(request, stream=True)
    outputs = run.run()

    assert outputs["a"].finish_reason is FinishReason.ABORTED
    assert 0 < outputs["a"].num_tokens < 20
    assert outputs["b"].tokens.tolist() == run.expected(requests[1])


def test_ended_requests_do_not_pile_up() -> None:
    deadlines = Deadlines()
    deadlines.add("kept", 1.0)
    for number in range(10_000):
        deadlines.add(f"r{number}", 1e6 + number)
        deadlines.forget(f"r{number}")

    assert len(deadlines) <= 200
    assert deadlines.due(2e6) == ["kept"]


def test_prompt_beyond_the_limit_is_refused_with_the_numbers() -> None:
    run = run_of(max_prompt_tokens=10)
    run.submit(make_request("a", 10))

    with pytest.raises(RequestTooLong, match="11 prompt tokens are above max_prompt_tokens=10") as refusal:
        run.submit(make_request("b", 11))
    assert refusal.value.evidence["max_prompt_tokens"] == 10
    assert run.scheduler.statistics().submitted == 1
