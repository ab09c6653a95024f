"""First in, first out: what was cached first goes first, however often it was used since."""

from __future__ import annotations

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.storage.eviction.policy import EvictionPolicy, PageFacts, Validity
from tidegate.storage.eviction.ranked import RankedPages, grown


class Fifo:
    """Lowest retention first, then first released first; of one release, the end of the sequence first."""

    notes_new = True

    def __init__(self, valid: Validity) -> None:
        self._order = RankedPages(valid)
        self._entered = np.zeros(0, np.int64)
        self._clock = 0

    def begin(self, pages: Int32Array) -> None:
        """Forget when the pages that had these ids came."""
        self._entered = grown(self._entered, int(pages.max(initial=-1)) + 1)
        self._entered[pages] = 0

    def push(self, pages: Int32Array | Int64Array, stamp: int, retention: int) -> None:
        """Note pages that became evictable; only a new one takes the last place."""
        self._clock += 1
        entered = self._entered[pages]
        entered[entered == 0] = self._clock
        self._entered[pages] = entered
        self._order.push(pages, entered, stamp, retention)

    def pop(self, count: int, valid: Validity) -> Int32Array:
        """Choose up to ``count`` pages, in order of going."""
        return self._order.pop(count, valid)

    def restore(self, pages: Int32Array, stamps: Int32Array, retentions: Int32Array) -> None:
        """Take popped pages back, at their places."""
        self._order.restore(pages, stamps)

    def restamp(self, stamp: int) -> None:
        """Drop entries that are not valid and give all others this stamp."""
        self._order.restamp(stamp)

    def num_queued(self, evictable: BoolArray) -> int:
        """Return how many of the pages marked evictable have a valid entry, for audits."""
        return self._order.num_queued(evictable)


def make(valid: Validity, pages: PageFacts) -> EvictionPolicy:
    """Return the order of one pool group."""
    return Fifo(valid)
