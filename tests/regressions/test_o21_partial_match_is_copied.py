"""O21: a partial match of a full block was written in place, under another request's feet."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, generate, start
from tidegate.testing.layouts import full, stacked

FIRST = [token % 11 for token in range(16)]


def blocks_of_eight(num_slots: int = 16) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=stacked(full()), max_sequences=4, max_seq_len=64, pool_slots=(num_slots,), tokens_per_block=8
        )
    )


def test_a_partial_match_is_copied_and_its_source_never_changes() -> None:
    driver = blocks_of_eight()
    first = start(driver, [*FIRST, 1])
    second = [*FIRST[:12], 20, 21, 22, 23, 24]
    candidate = driver.manager.candidate(second)
    assert driver.manager.lookup(candidate) == 12

    row = start(driver, second)
    slots = driver.arenas[0]

    assert slots[row, 0] == slots[first, 0]
    assert slots[row, 1] != slots[first, 1]
    driver.close(row)
    driver.close(first)
    assert generate(driver, [*FIRST, 1], 4) == expected(driver, [*FIRST, 1], 4)
    assert generate(driver, second, 4) == expected(driver, second, 4)


def test_a_block_equal_to_a_cached_one_is_adopted() -> None:
    driver = blocks_of_eight()
    first = driver.plan(
        admit=[(driver.manager.candidate([*FIRST, 1]), 17), (driver.manager.candidate([*FIRST, 2]), 17)]
    )
    assert first is not None
    step, _ = driver.open(first)
    one, two = (sequence.row for sequence in step.sequences)
    before = driver.arenas[0][[one, two]].copy()
    driver.execute(step)
    driver.settle()

    slots = driver.arenas[0]
    assert (before[0, :2] != before[1, :2]).all()
    assert (slots[one, :2] == slots[two, :2]).all()
    assert decode(driver, two, 3) == expected(driver, [*FIRST, 2], 4)[1:]


def test_without_a_lower_tier_suspending_drops_and_both_finish() -> None:
    driver = blocks_of_eight(num_slots=8)
    prompts = [[token % 11 + shift for token in range(40)] for shift in (0, 11)]
    first = start(driver, prompts[0])
    waiting = driver.suspend(first)
    second = start(driver, prompts[1])
    assert decode(driver, second, 3) == expected(driver, prompts[1], 4)[1:]
    driver.close(second)

    resumed = start(driver, waiting.tokens.tolist())
    assert decode(driver, resumed, 3) == expected(driver, prompts[0], 5)[2:]
