"""A state snapshot planned by a step that settled where it began was taken for that of its repetition."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, expected, generate, run_step
from tidegate.testing.layouts import stacked, state


def test_a_repeated_step_makes_its_own_snapshot() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(state()), max_sequences=2, max_seq_len=64, device_bytes=1 << 14, tokens_per_block=4
        )
    )
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    plan = driver.plan(admit=[(driver.manager.candidate(prompt), 8)])
    assert plan is not None
    step, _ = driver.open(plan)
    driver.drop(step)
    driver.settle([0])
    assert run_step(driver, grow=[(step.sequences[0].row, 8)])

    assert generate(driver, [*prompt, 9], 2) == expected(driver, [*prompt, 9], 2)
