"""Where each row's n-grams ended before, most recent first, kept up as the rows grow."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array
from tidegate.request import RunningSequences

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class NgramIndex:
    """A hash table with chains for each row, in arrays. A place is where an n-gram ends, its last position plus one.

    Unequal n-grams may share a chain: whoever follows it compares tokens. The n-gram at a row's very end is not in it.
    """

    def __init__(self, sequences: RunningSequences, num_tokens: int) -> None:
        num_rows, width = sequences.tokens.shape
        bits = max(int(width - 1).bit_length(), 4)
        self.sequences = sequences
        self._num_tokens = num_tokens
        self._num_buckets = 1 << bits
        self._shift = np.uint64(64 - bits)
        # Zeros are mapped only where they are touched.
        self._latest: Int32Array = np.zeros((num_rows, self._num_buckets), dtype=np.int32)
        self._before: Int32Array = np.zeros((num_rows, width + 1), dtype=np.int32)
        self._indexed: Int64Array = np.zeros(num_rows, dtype=np.int64)
        self._admission: Int64Array = np.full(num_rows, -1, dtype=np.int64)

    def update(self, rows: Int64Array) -> None:
        """Take in what these rows know by now. A row that went to another sequence begins anew."""
        sequences = self.sequences
        new = rows[self._admission[rows] != sequences.admission[rows]]
        if len(new):
            self._latest[new] = 0
            self._indexed[new] = self._num_tokens - 1
            self._admission[new] = sequences.admission[new]
        first, last = self._indexed[rows] + 1, sequences.num_tokens[rows] - 1
        counts = np.maximum(last - first + 1, 0)
        if not counts.any():
            return
        self._indexed[rows] += counts
        owners = np.repeat(rows, counts)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        self._insert(owners, places)

    def latest(self, rows: Int64Array) -> Int64Array:
        """Return the most recent place of what is at each row's end; 0 where there is none."""
        ends = self.sequences.num_tokens[rows]
        buckets = self._buckets(rows, np.maximum(ends, self._num_tokens))
        places = self._latest[rows, buckets].astype(np.int64)
        return np.where(ends >= self._num_tokens, places, 0)

    def before(self, rows: Int64Array, places: Int64Array) -> Int64Array:
        """Return the place before each of these in its chain; 0 where it is the first."""
        return self._before[rows, places].astype(np.int64)

    def _insert(self, rows: Int64Array, places: Int64Array) -> None:
        """Put places into their chains; each row's come in ascending order."""
        buckets = self._buckets(rows, places)
        keys = rows * self._num_buckets + buckets
        order = np.argsort(keys, kind="stable")
        rows, places, buckets, keys = rows[order], places[order], buckets[order], keys[order]
        is_same = keys[1:] == keys[:-1]
        before = self._latest[rows, buckets]
        before[1:][is_same] = places[:-1][is_same]
        self._before[rows, places] = before
        is_last = np.append(~is_same, True)
        self._latest[rows[is_last], buckets[is_last]] = places[is_last]

    def _buckets(self, rows: Int64Array, places: Int64Array) -> Int64Array:
        code = np.zeros(len(rows), dtype=np.uint64)
        for back in range(1, self._num_tokens + 1):
            code = (code + self.sequences.tokens[rows, places - back].astype(np.uint64)) * _MULTIPLIER
        return (code >> self._shift).astype(np.int64)
