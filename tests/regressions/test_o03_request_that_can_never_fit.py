"""O03: a request longer than the pool is refused or ends with capacity; it never blocks and never loops."""

import pytest

from tidegate.base import RequestTooLong
from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request


def run_of() -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=8, max_seq_len=1024, tokens_per_block=16, pool_slots=(63,)
    )
    return PlanningRun(cache, SchedulerConfig(max_num_tokens=256, max_batch_size=8))


def test_prompt_and_output_that_cannot_fit_are_refused_at_once() -> None:
    run = run_of()

    with pytest.raises(RequestTooLong):
        run.submit(make_request("R1", 1020, max_tokens=4))
    with pytest.raises(RequestTooLong):
        run.submit(make_request("R2", 1000, max_tokens=24))
    run.submit(make_request("fits", 1000, max_tokens=9))

    assert run.run()["fits"].finish_reason is FinishReason.LENGTH


def test_asked_to_run_as_far_as_it_can_it_ends_with_capacity_and_blocks_nobody() -> None:
    run = run_of()
    run.submit(make_request("R2", 1000, max_tokens=24, run_to_capacity=True))
    run.submit(make_request("R3", 32, max_tokens=4))

    outputs = run.run(max_steps=100)

    assert outputs["R2"].finish_reason is FinishReason.CAPACITY
    assert outputs["R2"].num_tokens == 9
    assert outputs["R3"].finish_reason is FinishReason.LENGTH
    assert run.scheduler.statistics().suspended == 0
