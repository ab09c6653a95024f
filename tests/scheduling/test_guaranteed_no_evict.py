"""With ``guaranteed_no_evict`` whoever starts has all of its length: nobody is ever suspended, whatever the load."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tidegate.base import ConfigError, RequestTooLong, Retention
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.choices import seeded
from tidegate.testing.layouts import build_layout, full, stacked, window
from tidegate.testing.serving import PlanningRun, ServingRun, make_request

LONGEST = 80


def random_settings(rng: random.Random) -> dict[str, Any]:
    return {
        "capacity_policy": "guaranteed_no_evict",
        "max_num_tokens": rng.choice([16, 32, 48]),
        "max_chunk_tokens": rng.choice([None, 16]),
        "max_batch_size": 6,
        "max_partial_prefills": rng.choice([1, 3]),
        "policy": rng.choice(["fcfs", "priority", "shortest_uncached_first"]),
        "max_overtakes": rng.choice([0, 2, 16]),
        "share_prefixes": rng.random() < 0.5,
    }


def submit_some(rng: random.Random, run: PlanningRun | ServingRun, *, count: int) -> int:
    heads = [[rng.randrange(31) for _ in range(24)] for _ in range(2)]
    taken = 0
    for number in range(count):
        prompt = rng.choice(heads)[: rng.randrange(24)] + [rng.randrange(31) for _ in range(rng.randrange(1, 6))]
        try:
            run.submit(make_request(f"r{number}", prompt, max_tokens=rng.randrange(1, 35), priority=rng.randrange(3)))
        except RequestTooLong:
            continue
        taken += 1
        for _ in range(rng.choice([0, 0, 1, 2])):
            run.step()
    return taken


def least_slots(cache: KVCacheConfig) -> list[int]:
    """Return the smallest pools in which the longest sequence can run alone, one pool after the other."""

    def fits(slots: list[int]) -> bool:
        try:
            small = replace(cache, device_bytes=None, pool_slots=tuple(slots))
            return KVCacheManager(small, with_memory=False).plan.fits_alone(LONGEST - 1)
        except ConfigError:
            return False

    num_pools = len(KVCacheManager(cache, with_memory=False).quote().supply)
    slots = [512] * num_pools
    for pool in range(num_pools):
        smaller = ([*slots[:pool], pages, *slots[pool + 1 :]] for pages in range(1, 513))
        slots = next(trial for trial in smaller if fits(trial))
    return slots


def random_run(rng: random.Random, seed: int) -> PlanningRun:
    layout = build_layout(seeded(seed))
    has_state = any(layer.retention is Retention.STATE for layer in layout.layers)
    cache = KVCacheConfig(
        layers=layout.layers,
        max_sequences=6,
        max_seq_len=LONGEST,
        tokens_per_block=layout.tokens_per_block,
        device_bytes=1 << 24,
        max_open_steps=1,
        max_rewind_len=0 if has_state else rng.choice([0, 0, 2]),
        enable_prefix_caching=rng.random() < 0.8,
        swa_scratch_reuse=rng.random() < 0.5,
    )
    slots = tuple(rng.randint(pages + 2, 2 * pages + 4) for pages in least_slots(cache))
    small = replace(cache, device_bytes=None, pool_slots=slots)
    return PlanningRun(small, SchedulerConfig(**random_settings(rng)))


@pytest.mark.parametrize("seed", range(24))
def test_nobody_is_suspended_under_random_loads(seed: int) -> None:
    rng = random.Random(seed)
    run = random_run(rng, seed)
    count = submit_some(rng, run, count=25)
    run.run(max_steps=3000)

    counts = run.scheduler.statistics()
    assert (counts.suspended, counts.admitted) == (0, count)
    assert all(not plan.exhausted for plan in run.plans)


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_suspended_when_steps_overlap(seed: int) -> None:
    rng = random.Random(seed)
    run = ServingRun(
        stacked(full(), window(6)),
        pool_slots=(rng.choice([20, 28, 40]),),
        tokens_per_block=4,
        max_seq_len=64,
        overlap=True,
        **random_settings(rng),
    )
    count = submit_some(rng, run, count=20)
    run.run(max_steps=3000)

    counts = run.session.statistics()
    assert (counts.suspended, counts.admitted) == (0, count)
