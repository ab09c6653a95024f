"""A rewind took the state snapshot of another text that shared the row's first block."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import StateError
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked, state


def test_a_sequence_outside_the_tree_has_no_snapshot_to_go_back_to() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), state()), max_sequences=2, max_seq_len=64, device_bytes=1 << 14, tokens_per_block=4
        )
    )
    row = start(driver, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    driver.manager.reuse.clear()
    start(driver, [1, 2, 3, 4, 0, 0, 0, 0, 0], chunk=8)

    with pytest.raises(StateError, match="snapshot"):
        driver.manager.rewind(np.array([row]), np.array([8]))
    driver.manager.audit()


def test_a_sequence_of_the_old_weights_never_takes_a_state_of_the_new() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(), state()), max_sequences=2, max_seq_len=64, device_bytes=1 << 14, tokens_per_block=4
        )
    )
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    row = start(driver, prompt)
    driver.manager.reuse.new_weights_epoch()
    driver.weights_epoch += 1
    start(driver, prompt, chunk=8)

    with pytest.raises(StateError, match="snapshot"):
        driver.manager.rewind(np.array([row]), np.array([8]))
    driver.manager.audit()
