"""Draws with the full sampler. Apart from ``drawing``, because it needs torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from tidegate.base import Int64Array
from tidegate.engine.sampling import History, LogitBias, SamplingBatch, TokenLists, sample, token_logprobs
from tidegate.request import Request, RunningSequences
from tidegate.runtime.drawing import Draw, Drawn, DrawnLogprobs, early_stops, next_positions

_NO_LOGPROBS = -1
_SEED_STRIDE = 1_000_003


class SamplingDrawer:
    """Temperature, truncation, penalties, log-probabilities. A draw depends on the request's seed and the position."""

    def __init__(self, max_sequences: int, seed: int) -> None:
        n = max_sequences
        self._seed = seed
        self._temperature = np.zeros(n, np.float32)
        self._top_k = np.zeros(n, np.int32)
        self._top_p = np.ones(n, np.float32)
        self._min_p = np.zeros(n, np.float32)
        self._repetition = np.ones(n, np.float32)
        self._presence = np.zeros(n, np.float32)
        self._frequency = np.zeros(n, np.float32)
        self._seeds = np.zeros(n, np.int64)
        self._logprobs = np.full(n, _NO_LOGPROBS, np.int32)
        self._has_penalties = np.zeros(n, np.bool_)

    def check(self, request: Request) -> None:
        """Accept everything that ``SamplingParams`` accepts."""

    def enter(self, row: int, request: Request, order: int) -> None:
        """Note the parameters; a request without a seed gets one from the runtime's seed and its order."""
        params = request.sampling
        self._temperature[row] = params.temperature
        self._top_k[row] = params.top_k
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._repetition[row] = params.repetition_penalty
        self._presence[row] = params.presence_penalty
        self._frequency[row] = params.frequency_penalty
        own = (self._seed * _SEED_STRIDE + order) % 2**63
        self._seeds[row] = own if params.seed is None else params.seed
        self._logprobs[row] = _NO_LOGPROBS if params.logprobs is None else params.logprobs
        self._has_penalties[row] = params.has_penalties

    def prepare(self, rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None = None) -> Draw:
        """Return the draw for these rows' next tokens."""
        batch = SamplingBatch(
            temperature=self._temperature[rows],
            top_k=self._top_k[rows],
            top_p=self._top_p[rows],
            min_p=self._min_p[rows],
            repetition_penalty=self._repetition[rows],
            presence_penalty=self._presence[rows],
            frequency_penalty=self._frequency[rows],
            seeds=self._seeds[rows],
            positions=next_positions(rows, sequences, ahead),
            logprobs=self._logprobs[rows],
            history=_history(rows, sequences) if self._has_penalties[rows].any() else None,
            bias=_ban(rows, sequences, ahead),
        )

        def draw(logits: npt.ArrayLike) -> Drawn:
            result = sample(_tensor(logits), batch)
            if result.logprobs is None:
                return Drawn(result.tokens)
            found = result.logprobs
            wanted = batch.logprobs.astype(np.int64)
            return Drawn(result.tokens, DrawnLogprobs(found.chosen, found.top_tokens, found.top, wanted))

        return draw

    def score(self, logits: npt.ArrayLike, tokens: Int64Array, wanted: Int64Array) -> DrawnLogprobs:
        """Return the log-probabilities of given tokens ``[m]`` under logits ``[m, vocabulary]``."""
        with torch.inference_mode():
            found = token_logprobs(_tensor(logits), tokens, int(wanted.max(initial=0)))
        return DrawnLogprobs(found.chosen, found.top_tokens, found.top, wanted)


def _tensor(logits: npt.ArrayLike) -> torch.Tensor:
    return logits if isinstance(logits, torch.Tensor) else torch.from_numpy(np.asarray(logits))


def _history(rows: Int64Array, sequences: RunningSequences) -> History:
    lengths = sequences.num_tokens[rows]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.concatenate([sequences.tokens[row, :n] for row, n in zip(rows.tolist(), lengths.tolist(), strict=True)])
    return History(TokenLists(tokens.astype(np.int64), indptr.astype(np.int64)), sequences.num_prompt[rows])


def _ban(rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None) -> LogitBias | None:
    """Return a bias that keeps stop tokens from being drawn before the minimum."""
    banned = early_stops(rows, sequences, ahead)
    if banned is None:
        return None
    place, tokens = banned
    indptr = np.searchsorted(place, np.arange(len(rows) + 1)).astype(np.int64)
    return LogitBias(TokenLists(tokens, indptr), np.full(len(tokens), -np.inf, np.float32))
