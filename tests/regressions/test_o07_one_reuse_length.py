"""O07: full and windowed groups once set a request's reuse length separately."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, start
from tidegate.testing.layouts import full, stacked, window

PROMPT = [token % 29 for token in range(7, 39)]


def cached_prompt(*, partial: bool) -> StepDriver:
    """Run a prompt of 32 tokens once, in one chunk: the window group keeps the checkpoint at its end."""
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), window(8)),
            max_sequences=4,
            max_seq_len=64,
            pool_slots=(64,),
            tokens_per_block=4,
            enable_partial_reuse=partial,
        )
    )
    driver.close(start(driver, PROMPT))
    return driver


@pytest.mark.parametrize(
    ("prompt", "partial", "reused"),
    [
        ([*PROMPT[:20], 30, 30, 30, 30], True, 0),
        ([*PROMPT, 1, 2, 3, 4, 5, 6, 7, 8], True, 32),
        (PROMPT, True, 31),
        (PROMPT, False, 0),
    ],
)
def test_all_groups_agree_on_one_length(prompt: list[int], partial: bool, reused: int) -> None:
    driver = cached_prompt(partial=partial)

    assert driver.manager.probe(prompt).reused == reused
    row = start(driver, prompt)
    assert decode(driver, row, 3) == expected(driver, prompt, 4)[1:]
