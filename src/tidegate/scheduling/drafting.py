"""Who gets drafts in the next step, and for whom they are worth their cost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import BoolArray, ConfigError, Int64Array
from tidegate.cache import KVCacheManager
from tidegate.request import Request, RunningSequences
from tidegate.scheduling.drafts import Drafts, DraftSource

_FIRST_GUESS = 0.5
_WEIGHT = 0.2
_LEAST_ACCEPTED = 0.45
_RETRY_GUESS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 16, 512
_UNMATCHED_PAUSE = 8


class Drafter:
    """Asks a draft source for the sequences it pays for.

    Each row keeps an estimate of the share of its drafts that is accepted, in which a step weighs 0.2. The estimate
    sets how many drafts the row gets; below 0.45 it gets none for 16 tokens, then a short try, and each time that
    fails the pause doubles, up to 512 tokens. Requests with penalties or ``prompt_logprobs`` get no drafts.

    With overlap a row is drafted only while none of its steps is open, since its next token must be known: a row worth
    drafting is left out of the step planned while its own is in flight. If the source then has nothing for it, it
    joins the overlapped steps again for 8 tokens.

    Only the scheduler calls ``enter``, ``note`` and ``learn``; planning reads.
    """

    def __init__(self, source: DraftSource, manager: KVCacheManager, sequences: RunningSequences, vocab_size: int):
        most, rewind = source.num_draft_tokens, manager.config.max_rewind_len
        if rewind < most:
            raise ConfigError(
                f"num_speculative_tokens={most} must be at most max_rewind_len={rewind} of the cache: so many tokens "
                "of a step may have to be taken back",
                field="num_speculative_tokens",
                value=most,
            )
        self._source = source
        self._most = most
        self._sequences = sequences
        self._vocab_size = vocab_size
        self._is_overlapped = manager.config.max_open_steps > 1
        num_rows = manager.config.max_sequences
        self._is_allowed: BoolArray = np.zeros(num_rows, dtype=np.bool_)
        self._accepted: npt.NDArray[np.float64] = np.zeros(num_rows)
        self._resumes_at: Int64Array = np.zeros(num_rows, dtype=np.int64)
        self._pause: Int64Array = np.zeros(num_rows, dtype=np.int64)

    def must_settle(self, rows: Int64Array, capacity: Int64Array) -> BoolArray:
        """Tell which decoding rows wait for their open step: it carries drafts, or they shall get some next."""
        num_tokens = self._sequences.num_tokens[rows]
        waiting: BoolArray = (capacity > num_tokens) | ((capacity == num_tokens) & self._is_worth(rows, num_tokens))
        return waiting

    def propose(self, rows: Int64Array, ends: Int64Array, most: int) -> Drafts | None:
        """Return drafts for rows whose step would end at ``ends`` without, ``most`` in all; None: nobody was asked.

        The next token of each row worth drafting is known, since those for which ``must_settle`` are not here.
        """
        sequences = self._sequences
        num_tokens = sequences.num_tokens[rows]
        limits = np.minimum(1 + (self._accepted[rows] * self._most).astype(np.int64), self._most)
        # The last token of a sequence is never computed, and one token is drawn behind the last draft.
        limits = np.minimum(limits, sequences.max_length[rows] - 1 - ends)
        is_asked = (limits > 0) & self._is_worth(rows, num_tokens)
        asked = is_asked.nonzero()[0]
        if most <= 0 or not len(asked):
            return None
        tokens, counts = self._source.propose(rows[asked], sequences, limits[asked])
        is_token = (tokens >= 0) & (tokens < self._vocab_size)
        counts = np.minimum(np.minimum(counts, limits[asked]), np.logical_and.accumulate(is_token, axis=1).sum(axis=1))
        counts = np.clip(most - (np.cumsum(counts) - counts), 0, counts)
        width = int(counts.max(initial=0))
        all_tokens = np.full((len(rows), width), -1, dtype=np.int32)
        all_tokens[asked] = np.where(np.arange(width) < counts[:, None], tokens[:, :width], -1)
        all_counts = np.zeros(len(rows), dtype=np.int64)
        all_counts[asked] = counts
        return Drafts(all_tokens, all_counts, is_asked)

    def _is_worth(self, rows: Int64Array, num_tokens: Int64Array) -> BoolArray:
        worth: BoolArray = self._is_allowed[rows] & (num_tokens >= self._resumes_at[rows])
        return worth

    def enter(self, row: int, request: Request) -> None:
        """Begin with the request that entered ``row``."""
        self._is_allowed[row] = not request.sampling.has_penalties and not request.prompt_logprobs
        self._accepted[row] = _FIRST_GUESS
        self._resumes_at[row] = 0
        self._pause[row] = _FIRST_PAUSE

    def note(self, rows: Int64Array, drafts: Drafts) -> None:
        """Note that a plan with these drafts of ``rows`` was begun."""
        if self._is_overlapped:
            lacking = rows[drafts.is_asked & (drafts.counts == 0)]
            self._resumes_at[lacking] = self._sequences.num_tokens[lacking] + _UNMATCHED_PAUSE

    def learn(self, rows: Int64Array, drafts: Drafts, tokens: Int64Array) -> int:
        """Learn from a step of these rows that kept ``tokens`` ``[n, m]``; return how many drafts were right."""
        given = (tokens >= 0).sum(axis=1)
        is_drafted = (drafts.counts > 0) & (given > 0)
        rows, accepted = rows[is_drafted], given[is_drafted] - 1
        estimate = self._accepted[rows]
        estimate += _WEIGHT * (accepted / drafts.counts[is_drafted] - estimate)
        is_poor = (estimate < _LEAST_ACCEPTED) & (accepted < drafts.counts[is_drafted])
        self._accepted[rows] = np.where(is_poor, _RETRY_GUESS, estimate)
        self._pause[rows[estimate > _FIRST_GUESS]] = _FIRST_PAUSE
        poor = rows[is_poor]
        self._resumes_at[poor] = self._sequences.num_tokens[poor] + self._pause[poor]
        self._pause[poor] = np.minimum(2 * self._pause[poor], _LONGEST_PAUSE)
        return int(accepted.sum())
