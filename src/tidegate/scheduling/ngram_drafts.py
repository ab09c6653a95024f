"""Prompt look-up: what followed the same few tokens last time is the guess."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, check_integer
from tidegate.request import RunningSequences
from tidegate.scheduling.ngram_index import NgramIndex

_MOST_COMPARED = 16


class NgramDrafts:
    """Looks a sequence's last tokens up among its own earlier ones, prompt and output.

    The longest match of ``min_ngram`` to ``max_ngram`` tokens counts, and of equally long ones the most recent; only
    the 16 most recent places are compared. Where what followed runs into the sequence's end, it is repeated: the
    sequence is then in a loop of that length. One object serves one scheduler: it keeps an index of the rows.
    """

    def __init__(self, max_ngram: int, min_ngram: int, num_draft_tokens: int) -> None:
        check_integer("max_ngram", max_ngram, 1, 64)
        check_integer("min_ngram", min_ngram, 1, max_ngram)
        check_integer("num_draft_tokens", num_draft_tokens, 1, 256)
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._num_draft_tokens = num_draft_tokens
        self._index: NgramIndex | None = None

    @property
    def num_draft_tokens(self) -> int:
        """The most drafts of one sequence in one step."""
        return self._num_draft_tokens

    def propose(
        self, rows: Int64Array, sequences: RunningSequences, limits: Int64Array
    ) -> tuple[Int32Array, Int64Array]:
        """Return the drafts: all that the limit allows where anything matches, else none."""
        lengths = sequences.num_tokens[rows]
        ends = self._matches(rows, sequences)
        counts = np.where(ends > 0, np.minimum(limits, self._num_draft_tokens), 0)
        steps = np.arange(int(counts.max(initial=0)))
        # A match that ends right before the sequence does has little behind it: go round in what there is.
        places = ends[:, None] + steps % np.maximum(lengths - ends, 1)[:, None]
        is_drafted = steps < counts[:, None]
        tokens = sequences.tokens[rows[:, None], np.where(is_drafted, places, 0)]
        return np.where(is_drafted, tokens, np.int32(-1)), counts

    def _matches(self, rows: Int64Array, sequences: RunningSequences) -> Int64Array:
        """Return where the best match of each row ends; 0 where there is none."""
        if self._index is None or self._index.sequences is not sequences:
            self._index = NgramIndex(sequences, self._min_ngram)
        self._index.update(rows)
        best, longest = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), self._min_ngram - 1)
        ends = self._index.latest(rows)
        left = ends.nonzero()[0]
        for _ in range(_MOST_COMPARED):
            if not len(left):
                break
            num_equal = self._num_equal(rows[left], sequences, ends[left])
            better = left[num_equal > longest[left]]
            longest[left] = np.maximum(longest[left], num_equal)
            best[better] = ends[better]
            left = left[longest[left] < self._max_ngram]
            ends[left] = self._index.before(rows[left], ends[left])
            left = left[ends[left] > 0]
        return best

    def _num_equal(self, rows: Int64Array, sequences: RunningSequences, ends: Int64Array) -> Int64Array:
        """Return how many tokens before ``ends`` are those at the rows' ends, ``max_ngram`` at most."""
        back = np.arange(1, self._max_ngram + 1)
        earlier = ends[:, None] - back
        last = sequences.num_tokens[rows][:, None] - back
        column = rows[:, None]
        is_equal = (sequences.tokens[column, earlier] == sequences.tokens[column, last]) & (earlier >= 0)
        num_equal: Int64Array = np.logical_and.accumulate(is_equal, axis=1).sum(axis=1)
        return num_equal
