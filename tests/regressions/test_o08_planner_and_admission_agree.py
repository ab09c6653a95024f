"""O08: a request is charged its live window, the step's tokens once for all; what is reported is what is admitted."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import PlanningRun, make_request


def cache_of(pages: int, *, rows: int = 64) -> KVCacheConfig:
    return KVCacheConfig(
        layers=stacked(window(4)),
        max_sequences=rows,
        max_seq_len=64,
        tokens_per_block=4,
        pool_slots=(pages,),
        swa_scratch_reuse=False,
        max_chunk_tokens=64,
    )


def test_as_many_as_reported_decode_together_and_one_more_waits() -> None:
    probe = PlanningRun(cache_of(64), SchedulerConfig(max_num_tokens=64, max_batch_size=64))
    reported = int(probe.manager.plan.max_concurrency(56))
    run = PlanningRun(cache_of(64), SchedulerConfig(max_num_tokens=64, max_batch_size=reported))
    for number in range(reported + 1):
        run.submit(make_request(f"r{number}", 6, max_tokens=50))

    while run.scheduler.statistics().running < reported:
        run.step()
    last = run.step()
    outputs = run.run()

    assert reported >= 16
    assert last.wait is not None
    assert (last.wait.request_id, last.wait.reason) == (f"r{reported}", "seats")
    assert all(output.num_tokens == 50 for output in outputs.values())
    assert run.scheduler.statistics().suspended == 0
    assert max(plan.num_tokens for plan in run.plans) <= 64


@pytest.mark.parametrize("pages", range(4, 20))
def test_one_full_length_request_is_admitted_whenever_one_is_reported(pages: int) -> None:
    cache = KVCacheConfig(
        layers=stacked(full(), window(6)),
        max_sequences=2,
        max_seq_len=32,
        tokens_per_block=4,
        pool_slots=(pages,),
        max_chunk_tokens=16,
    )
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=16, max_batch_size=2))
    request = make_request("r", 28, max_tokens=4, run_to_capacity=True)
    is_reported = run.manager.plan.max_concurrency(32) >= 1.0

    run.submit(request)
    output = run.run()["r"]

    if is_reported:
        assert output.finish_reason is FinishReason.LENGTH
