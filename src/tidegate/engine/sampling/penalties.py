"""Adjust logits for what a row has already said, touching only the tokens it has seen."""

from __future__ import annotations

import numpy as np
import torch

from tidegate.base import EngineError, Int64Array
from tidegate.engine.sampling.batch import History, LogitBias, SamplingBatch, TokenLists


def add_bias(logits: torch.Tensor, bias: LogitBias) -> None:
    """Add to single logits, in place."""
    row = _rows_of(bias.sequences)
    logits.index_put_(
        (torch.from_numpy(row), torch.from_numpy(bias.sequences.tokens)),
        torch.from_numpy(bias.values).to(logits.dtype),
        accumulate=True,
    )


def penalise(logits: torch.Tensor, batch: SamplingBatch, history: History) -> None:
    """Apply the repetition, presence and frequency penalties, in place.

    Repetition divides a seen token's positive logit and multiplies a negative one; presence is subtracted once and
    frequency once per occurrence, both for generated tokens only.
    """
    row, token, generated = _count(history, logits.shape[1])
    at = (torch.from_numpy(row), torch.from_numpy(token))
    seen = logits[at]
    repetition = torch.from_numpy(batch.repetition_penalty[row])
    seen = torch.where(seen > 0, seen / repetition, seen * repetition)
    seen -= torch.from_numpy(batch.presence_penalty[row] * (generated > 0))
    seen -= torch.from_numpy((batch.frequency_penalty[row] * generated).astype(np.float32))
    logits[at] = seen


def _rows_of(lists: TokenLists) -> Int64Array:
    return np.repeat(np.arange(lists.indptr.size - 1), np.diff(lists.indptr))


def _count(history: History, vocab_size: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return every distinct (row, token) seen and how often the row generated it."""
    lists = history.sequences
    if lists.tokens.size and not 0 <= int(lists.tokens.min()) <= int(lists.tokens.max()) < vocab_size:
        raise EngineError(f"history holds token ids outside [0, {vocab_size})")
    row = _rows_of(lists)
    place = np.arange(lists.tokens.size) - lists.indptr[row]
    pairs, inverse = np.unique(row * vocab_size + lists.tokens, return_inverse=True)
    generated = np.bincount(inverse, weights=place >= history.prompt_lengths[row], minlength=pairs.size)
    rows, tokens = np.divmod(pairs, vocab_size)
    return rows, tokens, generated.astype(np.int64)
