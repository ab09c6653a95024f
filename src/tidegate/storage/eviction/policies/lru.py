"""Least recently used: what was released longest ago goes first."""

from __future__ import annotations

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.storage.eviction.lazy_queue import LazyQueue
from tidegate.storage.eviction.policy import EvictionPolicy, PageFacts, Validity


class RetentionLru:
    """Lowest retention first, then least recently released."""

    notes_new = False

    def __init__(self, valid: Validity) -> None:
        self._valid = valid
        self._queues: dict[int, LazyQueue] = {}

    def begin(self, pages: Int32Array) -> None:
        """Never called: what a page was before tells nothing here."""

    def push(self, pages: Int32Array | Int64Array, stamp: int, retention: int) -> None:
        """Note pages that became evictable, first to go first."""
        queue = self._queues.get(retention)
        if queue is None:
            self._queues[retention] = queue = LazyQueue()
            self._queues = dict(sorted(self._queues.items()))
        queue.push(pages, stamp, self._valid)

    def pop(self, count: int, valid: Validity) -> Int32Array:
        """Choose up to ``count`` pages, in order of going."""
        chosen: list[Int32Array] = []
        for queue in self._queues.values():
            if count <= 0:
                break
            pages = queue.pop(count, valid)
            count -= len(pages)
            chosen.append(pages)
        return np.concatenate(chosen) if chosen else np.empty(0, np.int32)

    def restamp(self, stamp: int) -> None:
        """Drop entries that are not valid and give all others this stamp."""
        for queue in self._queues.values():
            queue.restamp(stamp, self._valid)

    def num_queued(self, evictable: BoolArray) -> int:
        """Return how many of the pages marked evictable have a valid entry, for audits."""
        found = np.zeros(len(evictable), np.bool_)
        for queue in self._queues.values():
            pages, stamps = queue.entries()
            found[pages[self._valid(pages, stamps)]] = True
        return int((found & evictable).sum())

    def restore(self, pages: Int32Array, stamps: Int32Array, retentions: Int32Array) -> None:
        """Take popped pages back, to be the first to go again."""
        for retention in sorted(set(retentions.tolist())):
            mine = retentions == retention
            self._queues.setdefault(retention, LazyQueue()).push_front(pages[mine], stamps[mine])
        self._queues = dict(sorted(self._queues.items()))


def make(valid: Validity, pages: PageFacts) -> EvictionPolicy:
    """Return the order of one pool group."""
    return RetentionLru(valid)
