"""O33: going back deeper than a window keeps gave wrong positions, or did nothing and said it had."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import StateError
from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, start
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.table_check import owned_blocks

PROMPT = [token % 7 for token in range(40)]


def generated(*, slack: int) -> tuple[StepDriver, int]:
    """Run 40 prompt tokens and 24 steps more, with a window of 16 over blocks of 4."""
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), window(16)),
            max_sequences=4,
            max_seq_len=96,
            pool_slots=(64,),
            tokens_per_block=4,
            max_rewind_len=slack,
        )
    )
    row = start(driver, PROMPT)
    decode(driver, row, 24)
    return driver, row


def test_without_slack_one_block_border_is_the_limit() -> None:
    driver, row = generated(slack=0)
    assert owned_blocks(driver.arenas[1], row) == {12, 13, 14, 15}

    with pytest.raises(StateError):
        driver.manager.rewind(np.array([row]), np.array([62]))

    driver.manager.audit()
    assert int(driver.manager.history[row]) == 64
    assert owned_blocks(driver.arenas[1], row) == {12, 13, 14, 15}


def test_without_slack_what_the_window_still_holds_can_be_gone_back_to() -> None:
    driver, row = generated(slack=0)

    driver.rewind(row, 63)

    tokens = list(driver.running[row].model.tokens)
    assert decode(driver, row, 6) == expected(driver, tokens, 6)


def test_configured_slack_is_honoured_exactly() -> None:
    for back in (63, 62, 61, 60):
        driver, row = generated(slack=4)
        assert owned_blocks(driver.arenas[1], row) == {11, 12, 13, 14, 15}
        driver.rewind(row, back)
        tokens = list(driver.running[row].model.tokens)

        assert decode(driver, row, 6) == expected(driver, tokens, 6)


def test_deeper_than_what_is_kept_is_refused() -> None:
    driver, row = generated(slack=4)

    with pytest.raises(StateError):
        driver.manager.rewind(np.array([row]), np.array([58]))
    driver.manager.audit()


def test_a_new_turn_reuses_a_checkpoint_or_nothing() -> None:
    driver, row = generated(slack=0)
    driver.close(row)
    turn = [*PROMPT, 20, 21, 22, 23]

    reused = driver.manager.probe(turn).reused
    again = start(driver, turn)

    assert reused == 40  # the prompt's end is a kept checkpoint
    assert decode(driver, again, 3) == expected(driver, turn, 4)[1:]
