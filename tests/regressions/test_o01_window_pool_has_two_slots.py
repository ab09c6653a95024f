"""O01: a windowed pool was sized to a single slot, though a window straddles a block border part of the time."""

from __future__ import annotations

import pytest

from tidegate.base import ConfigError
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import drive, expected, run_step
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.table_check import owned_blocks

LAYERS = stacked(full(), window(4))
BLOCK_BYTES = 8 * 32


def tight(num_window_slots: int = 2) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=LAYERS,
            max_sequences=8,
            max_seq_len=64,
            pool_slots=(32, num_window_slots),
            tokens_per_block=8,
            max_chunk_tokens=8,
            separate_pools=True,
            enable_prefix_caching=False,
        )
    )


@pytest.mark.parametrize("blocks", range(1, 24))
def test_any_quota_gives_the_window_two_slots_or_is_refused(blocks: int) -> None:
    try:
        manager = KVCacheManager(
            KVCacheConfig(
                layers=LAYERS,
                max_sequences=8,
                max_seq_len=64,
                device_bytes=blocks * BLOCK_BYTES,
                tokens_per_block=8,
                separate_pools=True,
            ),
            with_memory=False,
        )
    except ConfigError as error:
        assert "pool group" in str(error) and "bytes" in str(error)
        return
    assert manager.statistics().pools[1].slots >= 2


def test_an_explicit_single_slot_is_refused_naming_the_window() -> None:
    with pytest.raises(ConfigError, match="window 4"):
        tight(num_window_slots=1)


def test_the_window_swings_between_one_block_and_two() -> None:
    driver, prompt = tight(), [1, 2, 3, 4, 5, 6]
    step = run_step(driver, admit=[(driver.manager.candidate(prompt), 6)])
    assert step is not None
    row = step.sequences[0].row
    owned = {}
    for end in range(7, 27):
        assert run_step(driver, grow=[(row, end)])
        owned[end] = len(owned_blocks(driver.arenas[1], row))

    assert set(owned.values()) == {1, 2}
    assert (owned[9], owned[12]) == (2, 1)
    assert driver.running[row].model.tokens[6:] == expected(driver, prompt, 21)


def test_four_requests_over_two_slots_finish_one_after_another() -> None:
    driver = tight()
    waiting = [driver.manager.candidate([i, 2, 3, 4, 5, 6]) for i in range(4)]
    finished = 0
    for _ in range(200):
        progressed = False
        for row, running in list(driver.running.items()):
            if len(running.model.tokens) >= 16:
                driver.close(row)
                finished += 1
                progressed = True
            else:
                progressed |= run_step(driver, grow=[(row, running.model.history + 1)]) is not None
        if waiting and not driver.running:
            assert run_step(driver, admit=[(waiting.pop(0), 6)])
            progressed = True
        if finished == 4:
            break
        assert progressed
    assert finished == 4
