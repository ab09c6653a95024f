"""O05: a long chunked prefill gives its dead window blocks back before its next chunk is judged."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import stacked, window
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def test_four_chunks_and_no_empty_step() -> None:
    cache = KVCacheConfig(
        layers=stacked(window(32)),
        max_sequences=2,
        max_seq_len=4096,
        tokens_per_block=16,
        pool_slots=(52,),
        swa_scratch_reuse=False,
        enable_prefix_caching=False,
        max_chunk_tokens=512,
    )
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=512, max_batch_size=2))
    run.submit(make_request("long", 2000, max_tokens=1))
    first = run.step()
    after_first = run.supply
    run.run()

    assert first.num_tokens == 512
    assert after_first == (50,)
    assert [plan.num_tokens for plan in run.plans] == [512, 512, 512, 464]
    assert 52 - run.least_supply[0] <= 34


@pytest.mark.parametrize("pages", [52, 34])
def test_overlap_may_cut_or_hold_a_chunk_but_the_prefill_finishes(pages: int) -> None:
    run = ServingRun(
        stacked(window(32)),
        tokens_per_block=16,
        pool_slots=(pages,),
        max_seq_len=4096,
        max_num_tokens=512,
        max_batch_size=2,
        swa_scratch_reuse=False,
        enable_prefix_caching=False,
        overlap=True,
    )
    request = make_request("long", 2000, max_tokens=3)
    run.submit(request)

    assert run.run()["long"].tokens.tolist() == run.expected(request)
