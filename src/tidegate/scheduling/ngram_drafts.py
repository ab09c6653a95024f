"""Prompt look-up: what followed the same few tokens last time is the guess."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, check_integer
from tidegate.request import RunningSequences


class NgramDrafts:
    """Looks a sequence's last tokens up among its own earlier ones, prompt and output.

    The longest match of ``min_ngram`` to ``max_ngram`` tokens counts, and of equally long ones the most recent. Where
    what followed runs into the sequence's end, it is repeated: the sequence is then in a loop of that length.
    """

    def __init__(self, max_ngram: int, min_ngram: int, num_draft_tokens: int) -> None:
        check_integer("max_ngram", max_ngram, 1, 64)
        check_integer("min_ngram", min_ngram, 1, max_ngram)
        check_integer("num_draft_tokens", num_draft_tokens, 1, 256)
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._num_draft_tokens = num_draft_tokens

    @property
    def num_draft_tokens(self) -> int:
        """The most drafts of one sequence in one step."""
        return self._num_draft_tokens

    def propose(
        self, rows: Int64Array, sequences: RunningSequences, limits: Int64Array
    ) -> tuple[Int32Array, Int64Array]:
        """Return the drafts: all that the limit allows where anything matches, else none."""
        lengths = sequences.num_tokens[rows]
        ends = self._matches(rows, sequences.tokens, lengths)
        counts = np.where(ends > 0, np.minimum(limits, self._num_draft_tokens), 0)
        steps = np.arange(int(counts.max(initial=0)))
        # A match that ends right before the sequence does has little behind it: go round in what there is.
        places = ends[:, None] + steps % np.maximum(lengths - ends, 1)[:, None]
        is_drafted = steps < counts[:, None]
        tokens = sequences.tokens[rows[:, None], np.where(is_drafted, places, 0)]
        return np.where(is_drafted, tokens, np.int32(-1)), counts

    def _matches(self, rows: Int64Array, tokens: Int32Array, lengths: Int64Array) -> Int64Array:
        """Return where the best match of each row ends; 0 where there is none."""
        best = np.zeros(len(rows), dtype=np.int64)
        width = int(lengths.max(initial=0))
        last = tokens[rows, lengths - 1]
        place, at = np.nonzero(tokens[rows, : max(width - 1, 0)] == last[:, None])
        is_earlier = at < lengths[place] - 1
        place, at = place[is_earlier], at[is_earlier]
        num_equal = np.ones(len(at), dtype=np.int64)
        left = np.arange(len(at))
        for back in range(1, self._max_ngram):
            left = left[at[left] >= back]
            row = rows[place[left]]
            left = left[tokens[row, at[left] - back] == tokens[row, lengths[place[left]] - 1 - back]]
            if not len(left):
                break
            num_equal[left] += 1
        is_long = num_equal >= self._min_ngram
        place, rank = place[is_long], num_equal[is_long] * (width + 1) + at[is_long] + 1
        np.maximum.at(best, place, rank)
        return best % (width + 1)
