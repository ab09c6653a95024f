"""Least frequently used: what was used least often since it was cached goes first."""

from __future__ import annotations

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.storage.eviction.policy import EvictionPolicy, PageFacts, Validity
from tidegate.storage.eviction.ranked import RankedPages, grown

_CLOCK_BITS = 36
_MOST_USES = (1 << 18) - 1


class Lfu:
    """Lowest retention first, then fewest uses, then least recently released."""

    notes_new = True

    def __init__(self, valid: Validity) -> None:
        self._order = RankedPages(valid)
        self._uses = np.zeros(0, np.int64)
        self._clock = 0

    def begin(self, pages: Int32Array) -> None:
        """Forget how often the pages that had these ids were used."""
        self._uses = grown(self._uses, int(pages.max(initial=-1)) + 1)
        self._uses[pages] = 0

    def push(self, pages: Int32Array | Int64Array, stamp: int, retention: int) -> None:
        """Note pages that became evictable, and that they were used."""
        self._clock += 1
        uses = np.minimum(self._uses[pages] + 1, _MOST_USES)
        self._uses[pages] = uses
        self._order.push(pages, (uses << _CLOCK_BITS) + self._clock, stamp, retention)

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
    return Lfu(valid)
