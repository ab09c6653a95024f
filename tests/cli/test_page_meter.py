"""Pages of a step, held against counting position by position."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tidegate.base import Retention
from tidegate.cache import LayerGroup
from tidegate.cli.page_meter import group_name, scratch_use


def group(window: int | None, block: int, sink_blocks: int = 0, per_slot: int = 4) -> LayerGroup:
    fields = SimpleNamespace(
        window=window,
        block_tokens=block,
        sink_blocks=sink_blocks,
        sink_tokens=sink_blocks * block,
        scratch_per_slot=per_slot,
        retention=Retention.WINDOW if window else Retention.FULL,
    )
    return cast(LayerGroup, fields)


def scratch_blocks(start: int, end: int, window: int, block: int, sink_blocks: int) -> int:
    """Blocks that begin in the step, are no sinks, and that the query at ``end`` does not read."""
    first_read = max(0, end - window + 1)
    blocks = range(-(-start // block), -(-end // block))
    return sum(b >= sink_blocks and (b + 1) * block <= first_read for b in blocks)


@pytest.mark.parametrize("window", [1, 7, 16, 33])
@pytest.mark.parametrize("sink_blocks", [0, 2])
def test_scratch_blocks_are_those_written_and_left_behind(window: int, sink_blocks: int) -> None:
    steps = [(start, end) for start in range(0, 70, 3) for end in range(start + 1, 130, 5)]

    for start, end in steps:
        expected = scratch_blocks(start, end, window, 8, sink_blocks)
        assert scratch_use(group(window, 8, sink_blocks), np.array([start]), np.array([end])) == (
            expected,
            -(-expected // 4),
        ), (start, end)


def test_steps_of_a_batch_add_up() -> None:
    starts, ends = np.array([0, 0]), np.array([64, 128])

    blocks, slots = scratch_use(group(8, 8), starts, ends)

    assert (blocks, slots) == (7 + 15, 2 + 4)


@pytest.mark.parametrize("one", [group(None, 8), group(8, 8, per_slot=0)])
def test_full_groups_and_groups_without_scratch_have_none(one: LayerGroup) -> None:
    assert scratch_use(one, np.array([0]), np.array([100])) == (0, 0)


@pytest.mark.parametrize(
    ("one", "name"), [(group(None, 8), "full"), (group(7, 8), "window 7"), (group(7, 8, 2), "window 7 + 16 sinks")]
)
def test_groups_are_named_by_what_they_keep(one: LayerGroup, name: str) -> None:
    assert group_name(one) == name
