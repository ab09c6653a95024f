"""Free slots of one tier of one pool group: a stack in an int32 array.

Why a stack: taking and giving back any number of slots is one slice copy, and the slot given back last is the one
most likely still in a CPU cache.
"""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, InternalError


class FreeStack:
    """Distinct small integers that are free, lowest on top at the start."""

    def __init__(self, count: int, capacity: int | None = None) -> None:
        self._ids = np.empty(max(count, capacity or 0, 1), np.int32)
        self._ids[:count] = np.arange(count - 1, -1, -1, dtype=np.int32)
        self.count = count
        """How many are free; for reading only."""

    def __len__(self) -> int:
        return self.count

    def take(self, count: int) -> Int32Array:
        """Take ``count`` ids; the caller has made sure that they are there."""
        top = self.count - count
        if top < 0:
            raise InternalError(f"took {count} of {self.count} free ids", count=count, free=self.count)
        self.count = top
        return self._ids[top : top + count].copy()

    def give(self, ids: Int32Array | Int64Array) -> None:
        """Give ids back."""
        top = self.count
        end = top + len(ids)
        if end > len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(max(end - len(self._ids), len(self._ids)), np.int32)])
        self._ids[top:end] = ids
        self.count = end

    def peek(self) -> Int32Array:
        """Return the free ids, for audits."""
        return self._ids[: self.count].copy()
