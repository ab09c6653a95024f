"""Choose one token per row of logits.

Order: bias, penalties, temperature, min-p, top-k, top-p, draw. The draw inverts the cumulative distribution at one
uniform number per row, so it costs one number, not one per token of the vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch

from tidegate.base import EngineError, Int64Array
from tidegate.engine.sampling.batch import Logprobs, SampledTokens, SamplingBatch
from tidegate.engine.sampling.draws import uniforms
from tidegate.engine.sampling.penalties import add_bias, penalise

_NUCLEUS_GUESS = 1024
"""Sorting the whole vocabulary for top-p is slow and rarely needed: this many of the likeliest are tried first."""


def sample(logits: torch.Tensor, batch: SamplingBatch) -> SampledTokens:
    """Choose a token for every row of ``logits [m, vocab]``, which stays as it is.

    Raises ``EngineError`` when a row holds NaN or nothing to choose from.
    """
    if logits.shape[0] != batch.rows:
        raise EngineError(f"{logits.shape[0]} rows of logits for {batch.rows} rows of parameters")
    with torch.inference_mode():
        adjusted = adjust_logits(logits, batch)
        best = adjusted.max(dim=-1)
        if not torch.isfinite(best.values).all():
            bad = torch.nonzero(~torch.isfinite(best.values))[:4, 0].tolist()
            raise EngineError(f"logits of rows {bad} have no finite largest value", rows=bad)
        tokens = best.indices.numpy().copy()
        drawn = np.flatnonzero(batch.temperature > 0)
        if drawn.size:
            tokens[drawn] = _draw(adjusted, batch, drawn)
        logprobs = None
        if (batch.logprobs >= 0).any():
            logprobs = token_logprobs(logits, tokens, int(batch.logprobs.max()))
    return SampledTokens(tokens, logprobs)


def token_logprobs(logits: torch.Tensor, tokens: Int64Array, num_top: int) -> Logprobs:
    """Return log-probabilities of given tokens and of the ``num_top`` likeliest, for every row of logits."""
    logp = torch.log_softmax(logits.float(), dim=-1)
    chosen = logp.gather(1, torch.from_numpy(tokens)[:, None])[:, 0]
    top = logp.topk(num_top, dim=-1)
    return Logprobs(chosen.numpy(), top.indices.numpy(), top.values.numpy())


def adjust_logits(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    """Return the logits with bias and penalties applied; the given tensor itself where none is on."""
    if batch.bias is None and not batch.has_penalties:
        return logits
    adjusted = logits.to(torch.float32, copy=True)
    if batch.bias is not None:
        add_bias(adjusted, batch.bias)
    if batch.history is not None and batch.has_penalties:
        penalise(adjusted, batch, batch.history)
    return adjusted


def _draw(logits: torch.Tensor, batch: SamplingBatch, rows: Int64Array) -> Int64Array:
    scaled = logits[torch.from_numpy(rows)].float() / _column(batch.temperature[rows])
    scaled = _keep_min_p(scaled, batch.min_p[rows])
    scaled = _keep_top_k(scaled, batch.top_k[rows].astype(np.int64))
    weights = torch.softmax(scaled, dim=-1)
    weights = _keep_top_p(weights, batch.top_p[rows])
    # fp32 sums over a large vocabulary would lose the tail.
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    target = torch.from_numpy(uniforms(batch.seeds[rows], batch.positions[rows]))[:, None] * total
    below_total = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(cumulative, torch.minimum(target, below_total), right=True)[:, 0].numpy()


def _keep_min_p(scaled: torch.Tensor, min_p: np.ndarray) -> torch.Tensor:
    """Drop tokens less likely than ``min_p`` times the likeliest."""
    if not (min_p > 0).any():
        return scaled
    floor = scaled.amax(dim=-1, keepdim=True) + _column(np.log(np.maximum(min_p, np.finfo(np.float32).tiny)))
    return scaled.masked_fill((scaled < floor) & (_column(min_p) > 0), float("-inf"))


def _keep_top_k(scaled: torch.Tensor, top_k: Int64Array) -> torch.Tensor:
    """Drop tokens below the k-th likeliest; equals of the k-th stay."""
    k = np.where((top_k <= 0) | (top_k > scaled.shape[1]), scaled.shape[1], top_k)
    limited = np.flatnonzero(k < scaled.shape[1])
    if limited.size == 0:
        return scaled
    at = torch.from_numpy(limited)
    some = scaled[at]
    likeliest = some.topk(int(k[limited].max()), dim=-1).values
    floor = likeliest.gather(1, torch.from_numpy(k[limited] - 1)[:, None])
    scaled[at] = some.masked_fill(some < floor, float("-inf"))
    return scaled


def _keep_top_p(weights: torch.Tensor, top_p: np.ndarray) -> torch.Tensor:
    """Drop the tail beyond the fewest likeliest tokens that reach ``top_p``; equals of the last one stay."""
    limited = np.flatnonzero(top_p < 1)
    if limited.size == 0:
        return weights
    floor = torch.zeros(weights.shape[0], 1)
    floor[torch.from_numpy(limited)] = _nucleus_floor(weights[torch.from_numpy(limited)], _column(top_p[limited]))
    return weights.masked_fill(weights < floor, 0.0)


def _nucleus_floor(weights: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the weight of the last token of each row's nucleus ``[rows, 1]``."""
    floor = torch.empty(weights.shape[0], 1)
    pending = torch.arange(weights.shape[0])
    for width in (min(_NUCLEUS_GUESS, weights.shape[1]), weights.shape[1]):
        if pending.numel() == 0:
            break
        likeliest = weights[pending].topk(width, dim=-1).values
        cumulative = likeliest.double().cumsum(dim=-1)
        reached = (cumulative >= top_p[pending]).float()
        is_reached = reached.any(dim=-1) | torch.tensor(width == weights.shape[1])
        # Rounding may leave the whole row just short of top_p: then all of it is the nucleus.
        last = torch.where(reached.any(dim=-1), reached.argmax(dim=-1), torch.tensor(width - 1))
        floor[pending] = likeliest.gather(1, last[:, None])
        pending = pending[~is_reached]
    return floor


def _column(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))[:, None]
