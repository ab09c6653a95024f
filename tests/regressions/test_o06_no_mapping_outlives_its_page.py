"""O06: a stale mapping from full to window pages freed another sequence's window page."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import StateError
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import decode, drive, expected, start
from tidegate.testing.layouts import full, stacked, window

FIRST = [token % 9 for token in range(16)]
SECOND = [token % 7 + 10 for token in range(20)]


def test_a_reinserted_prompt_leaves_reused_window_slots_alone() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), window(8)),
            max_sequences=4,
            max_seq_len=64,
            pool_slots=(24, 12),
            tokens_per_block=4,
            separate_pools=True,
        )
    )
    driver.close(start(driver, FIRST))
    second = start(driver, SECOND)
    held = driver.arenas[1][second].copy()

    third = start(driver, [*FIRST, 1, 2, 3])
    driver.manager.audit()

    assert (driver.arenas[1][second] == held).all()
    for row, prompt in ((second, SECOND), (third, [*FIRST, 1, 2, 3])):
        assert decode(driver, row, 5) == expected(driver, prompt, 6)[1:]
        driver.close(row)
    driver.manager.audit()
    assert driver.manager.quote().supply == (24, 12)


def test_ending_twice_is_refused_not_obeyed() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), window(8)), max_sequences=4, max_seq_len=64, pool_slots=(24,), tokens_per_block=4
        )
    )
    row = start(driver, FIRST)
    driver.close(row)

    with pytest.raises(StateError):
        driver.manager.close(np.array([row]))
    driver.manager.audit()
