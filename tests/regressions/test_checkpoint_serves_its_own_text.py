"""Checkpoints were matched by position: a prompt reused window pages or a state that another text had left."""

from __future__ import annotations

import pytest

from tidegate.base import LayerSpec
from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import drive, expected, generate
from tidegate.testing.layouts import full, stacked, state, window

Jobs = list[tuple[list[int], int]]


def small(*layers: LayerSpec, tokens_per_block: int) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=stacked(*layers),
            max_sequences=2,
            max_seq_len=64,
            device_bytes=1 << 16,
            tokens_per_block=tokens_per_block,
        )
    )


@pytest.mark.parametrize(
    ("layer", "jobs"),
    [
        pytest.param(state(), [([1, 1, 1], 1), ([1, 1, 0, 1], 2), ([1, 1, 0, 0, 1, 0], 1)], id="tail beside a child"),
        pytest.param(window(5), [([0, 1, 0], 1), ([0, 1], 4), ([0, 1, 0, 0], 1)], id="child beside a tail"),
    ],
)
def test_texts_that_part_inside_a_unit_share_no_checkpoint(layer: LayerSpec, jobs: Jobs) -> None:
    driver = small(layer, tokens_per_block=2)
    for prompt, count in jobs:
        assert generate(driver, prompt, count) == expected(driver, prompt, count)


def test_a_block_filled_in_part_serves_no_longer_prefix() -> None:
    driver = small(window(3), full(), tokens_per_block=8)
    longer = [token % 5 for token in range(20)]
    for prompt in (longer, [9] * 20, longer[:1], [*longer[:7], 8, 8]):
        assert generate(driver, prompt, 1) == expected(driver, prompt, 1)
