"""O09: scratch reuse was switched on and saved nothing, because sizing never saw a prefill chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.greedy import decode, drive, expected, run_step
from tidegate.testing.layouts import stacked, window

PROMPT = [token * 5 % 31 for token in range(1024)]
CONFIG = KVCacheConfig(
    layers=stacked(*[window(128)] * 32),
    max_sequences=2,
    max_seq_len=2048,
    pool_slots=(40,),
    tokens_per_block=32,
    max_chunk_tokens=1024,
)


@pytest.mark.parametrize(("is_on", "slots"), [(True, 5), (False, 32)])
def test_slots_of_a_prefill_of_1024_tokens(is_on: bool, slots: int) -> None:
    driver = drive(replace(CONFIG, swa_scratch_reuse=is_on))
    plan = driver.plan(admit=[(driver.manager.candidate(PROMPT), 1024)])
    assert plan is not None

    step, _ = driver.open(plan)

    assert driver.manager.quote().supply == (40 - slots,)
    driver.execute(step)
    driver.settle()
    assert decode(driver, step.sequences[0].row, 3) == expected(driver, PROMPT, 4)[1:]


def test_the_same_bytes_admit_longer_chunks() -> None:
    in_bytes = replace(CONFIG, pool_slots=None, device_bytes=20 * 32 * 32 * 32)
    longest = {}
    for is_on in (True, False):
        manager = KVCacheManager(replace(in_bytes, swa_scratch_reuse=is_on), with_memory=False)
        ends = range(32, 1025, 32)
        longest[is_on] = max(end for end in ends if manager.quote().admit(manager.candidate(PROMPT), end))

    assert longest[True] == 1024
    assert longest[False] < 1024


def test_scratch_blocks_used_are_counted() -> None:
    driver = drive(CONFIG)
    run_step(driver, admit=[(driver.manager.candidate(PROMPT), 1024)])

    (group,) = driver.manager.statistics().groups
    assert group.scratch_blocks_served == 28
    assert group.scratch == 0


def test_no_scratch_block_is_offered_for_reuse() -> None:
    driver = drive(CONFIG)
    plan = driver.plan(admit=[(driver.manager.candidate(PROMPT), 1024)])
    assert plan is not None
    step, _ = driver.open(plan)
    driver.execute(step)
    driver.settle()

    for length in (32, 512, 896, 1000):
        assert driver.manager.probe([*PROMPT[:length], 30, 30]).reused == 0
    assert driver.manager.probe([*PROMPT, 30]).reused == 1024
