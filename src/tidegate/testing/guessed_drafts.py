"""Drafts that are right as often as a test wants."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array
from tidegate.request import RunningSequences
from tidegate.testing.fake_engine import FakeEngine


class GuessedDrafts:
    """A ``DraftSource`` that knows what the fake engine will say, and errs in ``num_wrong`` of 16 tokens.

    Which ones depends on the sequence's length and last token alone, so equal plans get equal drafts.
    """

    def __init__(self, engine: FakeEngine, num_draft_tokens: int, num_wrong: int = 4) -> None:
        self._engine = engine
        self._num_draft_tokens = num_draft_tokens
        self._num_wrong = num_wrong

    @property
    def num_draft_tokens(self) -> int:
        """The most drafts of one sequence in one step."""
        return self._num_draft_tokens

    def propose(
        self, rows: Int64Array, sequences: RunningSequences, limits: Int64Array
    ) -> tuple[Int32Array, Int64Array]:
        """Return as many drafts as the limits allow."""
        tokens = np.full((len(rows), self._num_draft_tokens), -1, dtype=np.int32)
        for place, (row, limit) in enumerate(zip(rows.tolist(), limits.tolist(), strict=True)):
            known = sequences.tokens[row, : sequences.num_tokens[row]].tolist()
            right = np.array(self._engine.continuation(known, limit), dtype=np.int64)
            is_wrong = (len(known) * 5 + known[-1] * 3 + np.arange(limit) * 7) % 16 < self._num_wrong
            tokens[place, :limit] = (right + is_wrong) % self._engine.vocab_size
        return tokens, limits.copy()
