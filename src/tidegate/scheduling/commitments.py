"""Pages that sequences may still come to need, so that nobody has to be suspended (``guaranteed_no_evict``).

With these left, each sequence may grow to its whole length at any pace and in any chunks. A windowed group is charged
its peak. Pages shared in a full-attention group are there as long as anybody who counts on them. A windowed group's are
not, because its windows part: there a sequence is credited only with blocks that it computed itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import BoolArray, Int64Array, Retention
from tidegate.cache import KVCacheManager, LayerGroup, window_peak


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Sequences in tokens: where they began behind what they reused, what has pages, and the most that ever will.

    ``is_prefill`` until the whole prompt has settled.
    """

    begins: Int64Array
    capacities: Int64Array
    most: Int64Array
    is_prefill: BoolArray


class Commitments:
    """Bounds of what sequences take from here on, per pool group."""

    def __init__(self, manager: KVCacheManager, num_pool_groups: int, max_chunk: int) -> None:
        config = manager.config
        self._groups = manager.groups
        self._num_pool_groups = num_pool_groups
        self._chunk = min(max_chunk, config.max_seq_len)
        self._steps = config.max_open_steps
        self._has_snapshots = manager.has_checkpoints

    def pages(self, extents: Extents) -> Int64Array:
        """Return the pages these sequences may take beside those they have."""
        total = np.zeros(self._num_pool_groups, dtype=np.int64)
        for group in self._groups:
            most = self._most(group, extents)
            if group.retention is Retention.STATE and self._has_snapshots:
                most = most + np.where(extents.is_prefill, self._steps, 0)  # snapshots, each locked while it is made
            total[group.pool_group] += int(np.maximum(most - self._credited(group, extents), 0).sum())
        return total

    def _most(self, group: LayerGroup, extents: Extents) -> Int64Array:
        whole: Int64Array = -(-extents.most // group.block_tokens)
        if group.window is None:
            return whole
        decode = self._peak(group, (1 + group.rule.max_rewind_len) * self._steps)
        chunk = self._peak(group, self._chunk * self._steps)
        if group.scratch_per_slot:
            blocks = -(-self._chunk // group.block_tokens) + 1
            windows = (self._steps + 1) * self._peak(group, 1)
            chunk = min(chunk, windows + -(-blocks // group.scratch_per_slot))
        peaks: Int64Array = np.where(extents.is_prefill, max(chunk, decode), decode)
        return np.minimum(whole, peaks)

    def _peak(self, group: LayerGroup, unsettled: int) -> int:
        rule = group.rule
        return window_peak(rule.window or 1, rule.block_tokens, unsettled, rule.max_rewind_len, rule.sink_blocks)

    def _credited(self, group: LayerGroup, extents: Extents) -> Int64Array:
        """Return pages that a sequence has for certain and that count for nobody else."""
        rule = group.rule
        ends = -(-extents.capacities // rule.block_tokens)
        if rule.window is None:
            return ends
        begins = -(-extents.begins // rule.block_tokens)
        live = np.maximum(begins, np.maximum(extents.capacities + 1 - rule.window, 0) // rule.block_tokens)
        sinks = np.minimum(rule.sink_blocks, ends)
        live = np.maximum(live, sinks)
        credited: Int64Array = np.maximum(ends - live, 0) + np.maximum(sinks - begins, 0)
        return credited
