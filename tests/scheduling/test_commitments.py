"""What a request is charged before it starts when nobody may ever be suspended: to the page."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.scheduling import SchedulerConfig
from tidegate.scheduling.commitments import Commitments, Extents
from tidegate.testing.layouts import full, stacked, state, window
from tidegate.testing.serving import PlanningRun, make_request


def manager_of(*layers: LayerSpec, pages: int = 64, scratch: bool = False) -> KVCacheManager:
    return KVCacheManager(
        KVCacheConfig(
            layers=stacked(*layers),
            max_sequences=8,
            max_seq_len=256,
            tokens_per_block=4,
            pool_slots=(pages,) if len(layers) == 1 else (pages, pages),
            max_open_steps=1,
            swa_scratch_reuse=scratch,
            separate_pools=True,
        ),
        with_memory=False,
    )


def charge(manager: KVCacheManager, *, begin: int, capacity: int, most: int, is_prefill: bool) -> list[int]:
    extents = Extents(
        np.array([begin], np.int64), np.array([capacity], np.int64), np.array([most], np.int64), np.array([is_prefill])
    )
    pages = Commitments(manager, len(manager.quote().supply), max_chunk=16).pages(extents)
    return [int(count) for count in pages]


def test_full_attention_is_charged_to_its_whole_length() -> None:
    assert charge(manager_of(full()), begin=0, capacity=9, most=40, is_prefill=False) == [10 - 3]
    assert charge(manager_of(full()), begin=8, capacity=9, most=41, is_prefill=True) == [11 - 3]


def test_window_is_charged_its_peak_with_a_chunk_while_it_prefills_and_with_a_token_later() -> None:
    cache = manager_of(window(8))

    assert charge(cache, begin=0, capacity=0, most=200, is_prefill=True) == [-(-(8 + 16 - 2) // 4) + 1]
    assert charge(cache, begin=0, capacity=40, most=200, is_prefill=False) == [3 - 2]
    assert charge(cache, begin=0, capacity=41, most=200, is_prefill=False) == [3 - 3]


def test_window_pages_of_others_are_no_credit() -> None:
    cache = manager_of(window(8))

    assert charge(cache, begin=40, capacity=40, most=200, is_prefill=False) == [3]


def test_scratch_makes_a_long_chunk_cheaper() -> None:
    layers = [window(4) for _ in range(8)]
    plain, scratch = (
        KVCacheManager(
            KVCacheConfig(
                layers=stacked(*layers),
                max_sequences=8,
                max_seq_len=256,
                tokens_per_block=4,
                pool_slots=(64,),
                max_open_steps=1,
                swa_scratch_reuse=is_on,
            ),
            with_memory=False,
        )
        for is_on in (False, True)
    )
    extents = Extents(np.array([0]), np.array([0]), np.array([200]), np.array([True]))
    costs = [int(Commitments(cache, 1, max_chunk=64).pages(extents)[0]) for cache in (plain, scratch)]

    assert costs[1] < costs[0]


def test_state_is_charged_its_snapshots_while_it_prefills() -> None:
    cache = manager_of(full(), state())

    assert charge(cache, begin=0, capacity=0, most=8, is_prefill=True)[1] == 2
    assert charge(cache, begin=0, capacity=4, most=8, is_prefill=False)[1] == 0


@pytest.mark.parametrize(("pages", "together"), [(30, 3), (29, 2), (20, 2), (19, 1), (10, 1)])
def test_as_many_start_as_fit_with_all_of_their_length(pages: int, together: int) -> None:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=8, max_seq_len=64, tokens_per_block=4, pool_slots=(pages,)
    )
    config = SchedulerConfig(max_num_tokens=64, max_batch_size=8, capacity_policy="guaranteed_no_evict")
    run = PlanningRun(cache, config)
    for number in range(4):
        run.submit(make_request(f"r{number}", 5, max_tokens=36))  # 40 positions: 10 pages
    plan = run.step()

    assert len(plan.admissions) == together
    if together > 1:
        assert plan.wait is not None
        assert plan.wait.reason == "reservation"
    run.run()
    assert run.scheduler.statistics().suspended == 0


def test_alone_a_request_starts_whatever_it_is_charged() -> None:
    cache = KVCacheConfig(
        layers=stacked(full(), window(8)), max_sequences=4, max_seq_len=64, tokens_per_block=4, pool_slots=(20,)
    )
    config = SchedulerConfig(max_num_tokens=64, max_batch_size=4, capacity_policy="guaranteed_no_evict")
    run = PlanningRun(cache, config)
    run.submit(make_request("a", 50, max_tokens=10))

    assert run.run()["a"].num_tokens == 10
