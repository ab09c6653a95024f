"""Pages an admission must leave for the sequences already active."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int64Array, Retention
from tidegate.cache import LayerGroup, window_peak


class Headroom:
    """Pages for ``min(remaining, blocks * B)`` more tokens of each sequence, at most ``share`` of a pool group."""

    def __init__(self, groups: Sequence[LayerGroup], pool_pages: tuple[int, ...], blocks: int, share: float) -> None:
        self._groups = tuple(group for group in groups if group.retention is not Retention.STATE)
        self._blocks = blocks
        self._most = np.array([int(pages * share) for pages in pool_pages], dtype=np.int64)

    def pages(self, capacities: Int64Array, max_lengths: Int64Array) -> Int64Array:
        """Return the pages to leave, per pool group."""
        need = np.zeros_like(self._most)
        for group in self._groups:
            block, rewind = group.block_tokens, group.rule.max_rewind_len
            ahead = np.minimum(max_lengths, capacities + self._blocks * block)
            have = -(-capacities // block)
            more = -(-ahead // block) - have
            if group.window is not None:
                # A window that is full slides: it gives back what it takes.
                peak = window_peak(group.window, block, 1 + rewind, rewind, sink_blocks=group.sink_blocks)
                more = np.minimum(more, np.maximum(peak - have, 0))
            need[group.pool_group] += int(np.maximum(more, 0).sum())
        least: Int64Array = np.minimum(need, self._most)
        return least

    def floor_of(self, start: int, end: int) -> Int64Array:
        """Return pages that admitting positions ``start`` to ``end`` surely takes, per pool group."""
        need = np.zeros_like(self._most)
        for group in self._groups:
            if group.window is None:
                need[group.pool_group] += -(-end // group.block_tokens) - start // group.block_tokens
        return need
