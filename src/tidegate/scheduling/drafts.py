"""Draft tokens: guesses of what a sequence says next, computed in the same step and kept as far as they come true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.request import RunningSequences


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """Drafts of a step's rows, in their order: ``tokens`` ``[n, k]``, of which the first ``counts[i]`` count.

    The others are -1. ``is_asked`` tells for which rows the source was asked at all.
    """

    tokens: Int32Array
    counts: Int64Array
    is_asked: BoolArray

    @property
    def num_tokens(self) -> int:
        """How many drafts there are."""
        return int(self.counts.sum())

    def cut(self, most: Int64Array) -> Drafts:
        """Return at most ``most[i]`` drafts of each row."""
        counts = np.minimum(self.counts, most)
        is_kept = np.arange(self.tokens.shape[1]) < counts[:, None]
        return Drafts(np.where(is_kept, self.tokens, np.int32(-1)), counts, self.is_asked)

    def of_step(self, is_computed: BoolArray) -> Drafts:
        """Return the drafts for all rows of a step: none behind its decodes, and none for what is not computed."""
        more = len(is_computed) - len(self.counts)
        padded = Drafts(
            np.pad(self.tokens, ((0, more), (0, 0)), constant_values=-1),
            np.pad(self.counts, (0, more)),
            np.pad(self.is_asked, (0, more)),
        )
        return padded.cut(np.where(is_computed, padded.counts, 0))


class DraftSource(Protocol):
    """Guesses tokens of many sequences at once. A wrong guess costs time and never changes an output."""

    @property
    def num_draft_tokens(self) -> int:
        """The most drafts of one sequence in one step."""
        ...

    def propose(
        self, rows: Int64Array, sequences: RunningSequences, limits: Int64Array
    ) -> tuple[Int32Array, Int64Array]:
        """Return drafts of these distinct rows, at most ``limits[i]`` (1 or more) each: ``tokens, counts``.

        ``tokens`` is int32 ``[n, k]``, -1 behind the first ``counts[i]``. Row ``i`` knows
        ``sequences.tokens[rows[i], : sequences.num_tokens[rows[i]]]``, and the first draft is the token behind those.
        Equal sequences must get equal drafts: a plan may be made more than once.
        """
        ...
