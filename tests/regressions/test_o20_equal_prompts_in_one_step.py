"""O20, the cache's part: equal prefixes computed side by side end as one physical copy."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected
from tidegate.testing.layouts import full, stacked, window

PREFIX = [token % 13 for token in range(64)]
PROMPTS = [[*PREFIX, *[20 + i] * 16] for i in range(3)]


def burst() -> tuple[StepDriver, list[int]]:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), window(40)),
            max_sequences=4,
            max_seq_len=128,
            pool_slots=(40,),
            tokens_per_block=32,
        )
    )
    plan = driver.plan(admit=[(driver.manager.candidate(prompt), 80) for prompt in PROMPTS])
    assert plan is not None
    step, _ = driver.open(plan)
    driver.execute(step)
    driver.settle()
    return driver, [sequence.row for sequence in step.sequences]


def test_a_burst_of_equal_prefixes_keeps_one_copy_of_full_pages() -> None:
    driver, rows = burst()
    arena = driver.arenas[0]

    assert len({tuple(arena[row, :2].tolist()) for row in rows}) == 1
    assert len({int(arena[row, 2]) for row in rows}) == 3
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert decode(driver, row, 3) == expected(driver, prompt, 4)[1:]


def test_an_owner_that_fails_leaves_nothing_to_wait_for() -> None:
    driver = burst()[0]
    fresh = [[25, *PROMPTS[0]], [25, *PROMPTS[1]]]
    owner = driver.plan(admit=[(driver.manager.candidate(fresh[0]), 80)])
    assert owner is not None
    with driver.manager.reserve(owner.quote) as reservation:
        reservation.dispatch()
        reservation.rollback()

    follower = driver.manager.candidate(fresh[1])
    assert driver.manager.lookup(follower) == 0
    plan = driver.plan(admit=[(follower, 81)])
    assert plan is not None
    step, _ = driver.open(plan)
    driver.execute(step)
    driver.settle()
    driver.manager.audit()
