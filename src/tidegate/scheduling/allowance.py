"""What an admission must leave to those already active: headroom, or all that they may come to need."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int64Array
from tidegate.cache import KVCacheManager
from tidegate.request import RunningSequences
from tidegate.scheduling.commitments import Commitments, Extents
from tidegate.scheduling.config import SchedulerConfig
from tidegate.scheduling.headroom import Headroom
from tidegate.scheduling.plan import Waiting, WaitReason


class Allowance:
    """Pages per pool group, by ``capacity_policy``. ``reason`` is why a request waits that would leave too few."""

    def __init__(
        self,
        manager: KVCacheManager,
        sequences: RunningSequences,
        config: SchedulerConfig,
        pool_pages: tuple[int, ...],
    ) -> None:
        self._history = manager.history
        self._sequences = sequences
        self._headroom = Headroom(manager.groups, pool_pages, config.headroom_blocks, config.headroom_share)
        self._commitments: Commitments | None = None
        if config.capacity_policy == "guaranteed_no_evict":
            longest = config.max_chunk_tokens or config.max_num_tokens
            self._commitments = Commitments(manager, len(pool_pages), longest)
        self._gate = np.ceil(np.array(pool_pages) * (1.0 - manager.config.max_util_for_resume)).astype(np.int64)
        self.reason: WaitReason = "headroom" if self._commitments is None else "reservation"

    def to_leave(self, rows: Int64Array, starts: list[int], capacities: Int64Array, most: Int64Array) -> Int64Array:
        """Return what to leave to active ``rows``, and to those that this plan admits at ``starts``.

        ``capacities`` after the step and ``most`` that they will ever be are of both, in this order.
        """
        if self._commitments is None:
            return self._headroom.pages(capacities, most)
        added = np.array(starts, dtype=np.int64)
        is_prefill = self._history[rows] < self._sequences.target[rows]
        extents = Extents(
            begins=np.concatenate((self._sequences.reused[rows], added)),
            capacities=capacities,
            most=most,
            is_prefill=np.concatenate((is_prefill, np.ones(len(added), dtype=np.bool_))),
        )
        return self._commitments.pages(extents)

    def gated(self, waiting: Waiting, leave: Int64Array) -> Int64Array:
        """Return what ``waiting`` has to leave: one that comes back also has to pass the resume gate."""
        gated: Int64Array = np.maximum(leave, self._gate) if waiting.candidate.is_resumed else leave
        return gated

    def least(self, waiting: Waiting, start: int, end: int) -> Int64Array:
        """Return pages that admitting ``start`` to ``end`` surely takes or claims, before it is priced."""
        if self._commitments is None:
            return self._headroom.floor_of(start, end)
        return self.claim(waiting, start, start)

    def claim(self, waiting: Waiting, start: int, end: int) -> Int64Array:
        """Return pages that a request admitted from ``start`` to ``end`` may come to need and must find reserved."""
        if self._commitments is None:
            return np.zeros_like(self._gate)
        extents = Extents(
            begins=np.array([start], dtype=np.int64),
            capacities=np.array([end], dtype=np.int64),
            most=np.array([waiting.max_length - 1], dtype=np.int64),
            is_prefill=np.ones(1, dtype=np.bool_),
        )
        return self._commitments.pages(extents)
