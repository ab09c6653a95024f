"""Entries in the order of their coming, whose invalid ones are dropped only when they are met.

Entries are pushed with the stamp of their release, and an entry whose page has another stamp by now (it was used since)
is dropped when it is popped. Push and pop are amortised O(1) per page and work on whole arrays.
"""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array
from tidegate.storage.eviction.policy import Validity


class LazyQueue:
    """Entries ``(page, stamp)`` between ``head`` and ``tail`` of two growing arrays."""

    def __init__(self) -> None:
        self._pages = np.empty(256, np.int32)
        self._stamps = np.empty(256, np.int32)
        self._head = self._tail = 0

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, pages: Int32Array | Int64Array, stamps: int | Int32Array, valid: Validity | None) -> None:
        """Append entries; ``valid`` says which older ones may be dropped when room is needed."""
        count = len(pages)
        if self._tail + count > len(self._pages):
            self._repack(count, valid)
        tail = self._tail
        self._pages[tail : tail + count] = pages
        self._stamps[tail : tail + count] = stamps
        self._tail = tail + count

    def push_front(self, pages: Int32Array, stamps: Int32Array) -> None:
        """Put entries before all others."""
        keep_pages = np.concatenate([pages, self._pages[self._head : self._tail]])
        keep_stamps = np.concatenate([stamps, self._stamps[self._head : self._tail]])
        self._replace(keep_pages, keep_stamps, len(keep_pages) * 5 // 4)

    def pop(self, count: int, valid: Validity) -> Int32Array:
        """Take up to ``count`` valid pages from the front; entries that are not valid are dropped on the way."""
        chosen: list[Int32Array] = []
        while count > 0 and self._head < self._tail:
            end = min(self._head + count, self._tail)
            pages = self._pages[self._head : end]
            good = pages[valid(pages, self._stamps[self._head : end])]
            self._head = end
            count -= len(good)
            chosen.append(good)
        return np.concatenate(chosen) if chosen else np.empty(0, np.int32)

    def entries(self) -> tuple[Int32Array, Int32Array]:
        """Return pages and stamps, in order."""
        return self._pages[self._head : self._tail], self._stamps[self._head : self._tail]

    def restamp(self, stamp: int, valid: Validity) -> None:
        """Drop entries that are not valid and give all others this stamp."""
        pages, stamps = self.entries()
        pages = pages[valid(pages, stamps)]
        self._replace(pages, np.full(len(pages), stamp, np.int32), 0)

    def _repack(self, room: int, valid: Validity | None) -> None:
        pages, stamps = self.entries()
        size = len(self._pages)
        if len(pages) + room > size or self._head * 5 < size:
            if valid is not None:
                keep = valid(pages, stamps)
                pages, stamps = pages[keep], stamps[keep]
            # A quarter of slack keeps repacking amortised and the memory per page small.
            size = max(size, (len(pages) + room) * 5 // 4)
        self._replace(pages, stamps, size)

    def _replace(self, pages: Int32Array, stamps: Int32Array, size: int) -> None:
        new_pages, new_stamps = self._pages, self._stamps
        if size > len(new_pages):
            new_pages, new_stamps = np.empty(size, np.int32), np.empty(size, np.int32)
        new_pages[: len(pages)], new_stamps[: len(pages)] = pages, stamps
        self._pages, self._stamps, self._head, self._tail = new_pages, new_stamps, 0, len(pages)
