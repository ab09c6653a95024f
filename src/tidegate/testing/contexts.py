"""What each row's tokens are, as hashes of every prefix: the truth a fake engine checks reads against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import BoolArray, Int64Array
from tidegate.testing.fingerprints import UInt64Array, prefix_hashes, root


class ContextBook:
    """Prefix hashes of each row, by position; grows to the largest row and the longest context it is told of."""

    def __init__(self) -> None:
        self._hashes = np.zeros((1, 64), dtype=np.uint64)
        self._length = np.zeros(1, dtype=np.int64)
        self._root = np.full(1, root(0), dtype=np.uint64)
        self._declared = np.zeros(1, dtype=np.bool_)
        self._has_gaps = np.zeros(1, dtype=np.bool_)

    def declare(self, row: int, tokens: Sequence[int], salt: int) -> None:
        """State that ``row`` now runs a context that begins with these tokens, in a scope of this salt."""
        self._reach(row + 1, len(tokens))
        self._root[row] = root(salt)
        self._declared[row] = True
        given = np.asarray(tokens, dtype=np.int64)
        hashes = prefix_hashes(self._root[row : row + 1], given, np.array([0, len(given)]))
        self._hashes[row, : len(given)] = hashes
        self._length[row] = len(given)
        self._has_gaps[row] = False

    def forget(self, row: int) -> None:
        """State that nothing is known of ``row`` any more."""
        self._reach(row + 1, 0)
        self._declared[row] = False
        self._has_gaps[row] = False
        self._length[row] = 0
        self._root[row] = root(0)

    def is_declared(self, rows: Int64Array) -> BoolArray:
        """Tell which rows' contexts were declared."""
        self._reach(int(rows.max()) + 1, 0)
        return self._declared[rows]

    def reaches(self, rows: Int64Array, positions: Int64Array) -> BoolArray:
        """Tell which rows are known without gaps up to and at a position."""
        return (self._length[rows] > positions) & ~self._has_gaps[rows]

    def before(self, rows: Int64Array, positions: Int64Array) -> UInt64Array:
        """Return the hash of all tokens below each position."""
        inside = self._hashes[rows, np.maximum(positions - 1, 0)]
        return np.where(positions > 0, inside, self._root[rows])

    def at(self, rows: Int64Array, positions: Int64Array) -> UInt64Array:
        """Return the hash of the prefix that ends with each position."""
        return self._hashes[rows, positions]

    def learn(self, row: int, positions: Int64Array, hashes: UInt64Array) -> None:
        """Accept hashes found in the cache as part of the row's context."""
        self._reach(row + 1, int(positions.max()) + 1)
        self._hashes[row, positions] = hashes

    def end_learning(self, row: int, length: int, *, has_gaps: bool) -> None:
        """State how far the row's context was learned, and whether positions are missing in between."""
        self._length[row] = length
        self._has_gaps[row] = has_gaps

    def extend(self, rows: Int64Array, starts: Int64Array, tokens: Int64Array, cu_seqlens: Int64Array) -> UInt64Array:
        """Replace each row's context from ``starts`` on by the step's tokens and return their prefix hashes."""
        lengths = np.diff(cu_seqlens)
        ends = starts + lengths
        self._reach(int(rows.max()) + 1, int(ends.max()))
        hashes = prefix_hashes(self.before(rows, starts), tokens, cu_seqlens)
        local = np.arange(len(tokens)) - np.repeat(cu_seqlens[:-1], lengths)
        self._hashes[np.repeat(rows, lengths), np.repeat(starts, lengths) + local] = hashes
        self._length[rows] = ends
        return hashes

    def _reach(self, num_rows: int, num_tokens: int) -> None:
        rows, width = self._hashes.shape
        if num_rows <= rows and num_tokens <= width:
            return
        rows, width = max(rows, 2 * num_rows), width if num_tokens <= width else 2 * num_tokens
        more = rows - len(self._length)
        hashes = np.zeros((rows, width), dtype=np.uint64)
        hashes[: self._hashes.shape[0], : self._hashes.shape[1]] = self._hashes
        self._hashes = hashes
        self._length = np.concatenate([self._length, np.zeros(more, dtype=np.int64)])
        self._root = np.concatenate([self._root, np.full(more, root(0), dtype=np.uint64)])
        self._declared = np.concatenate([self._declared, np.zeros(more, dtype=np.bool_)])
        self._has_gaps = np.concatenate([self._has_gaps, np.zeros(more, dtype=np.bool_)])
