"""The sampler: distributions match what was asked, and a row's tokens depend on its seed and position only."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from tidegate.base import EngineError
from tidegate.engine.sampling import History, LogitBias, SamplingBatch, TokenLists, adjust_logits, sample

DRAWS = 4000


def batch(rows: int, **columns: Any) -> SamplingBatch:
    base = SamplingBatch.greedy(rows)
    arrays = {
        name: np.broadcast_to(np.asarray(value, getattr(base, name).dtype), (rows,)).copy()
        for name, value in columns.items()
        if name not in ("history", "bias")
    }
    return dataclasses.replace(base, **{**columns, **arrays})


def frequencies(logits: torch.Tensor, **columns: Any) -> np.ndarray:
    """Draw many tokens from one distribution, one position each; return how often each came."""
    rows = batch(DRAWS, temperature=columns.pop("temperature", 1.0), positions=np.arange(DRAWS), **columns)
    tokens = sample(logits.expand(DRAWS, -1), rows).tokens
    return np.bincount(tokens, minlength=logits.numel()) / DRAWS


def test_greedy_takes_the_likeliest() -> None:
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    assert sample(logits, SamplingBatch.greedy(5)).tokens.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    expected = torch.softmax(logits / temperature, -1).numpy()
    seen = frequencies(logits, temperature=temperature, seeds=7)
    assert np.abs(seen - expected).max() < 4 * 0.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.7}, {0, 1}),
        ({"top_p": 0.45}, {0}),
        ({"min_p": 0.4}, {0, 1}),
        ({"top_k": 3, "top_p": 0.9}, {0, 1, 2}),
        ({"top_k": 2, "top_p": 0.6}, {0}),
        ({"top_k": 99}, {0, 1, 2, 3}),
    ],
)
def test_filters_keep_exactly_their_tokens(filters: dict[str, float], kept: set[int]) -> None:
    weights = np.array([0.5, 0.25, 0.15, 0.1])
    seen = frequencies(torch.tensor(weights).log().float(), **filters)
    assert set(np.flatnonzero(seen)) == kept
    only = np.where(np.isin(np.arange(4), list(kept)), weights, 0)
    assert np.abs(seen - only / only.sum()).max() < 4 * 0.5 / np.sqrt(DRAWS)


def test_top_p_is_exact_when_the_nucleus_is_wider_than_the_first_guess() -> None:
    logits = torch.zeros(1, 5000)
    logits[0, 4000:] = -3.0
    rows = batch(300, temperature=1.0, top_p=0.9, positions=np.arange(300))
    assert sample(logits.expand(300, -1), rows).tokens.max() < 4000


def test_a_row_does_not_depend_on_its_company() -> None:
    logits = torch.randn(6, 200, generator=torch.Generator().manual_seed(1))
    columns: dict[str, Any] = {"temperature": 0.9, "top_p": [1, 0.9, 0.5, 1, 0.8, 1], "top_k": [0, 5, 0, 9, 0, 0]}
    seeds, positions = np.arange(6) * 11, np.arange(6) + 40
    together = sample(logits, batch(6, seeds=seeds, positions=positions, **columns)).tokens
    for order in ([3], [5, 0], [4, 2, 1]):
        mine = {n: np.broadcast_to(v, 6)[order] for n, v in columns.items()}
        alone = sample(logits[order], batch(len(order), seeds=seeds[order], positions=positions[order], **mine))
        assert alone.tokens.tolist() == together[order].tolist()


def test_neighbouring_seeds_and_positions_are_different_streams() -> None:
    logits = torch.zeros(1, 1000).expand(400, -1)
    first = sample(logits, batch(400, temperature=1.0, seeds=1, positions=np.arange(400))).tokens
    second = sample(logits, batch(400, temperature=1.0, seeds=2, positions=np.arange(400))).tokens
    assert len(set(first.tolist())) > 250
    assert (first == second).mean() < 0.05
    assert (first[1:] == second[:-1]).mean() < 0.05


def test_greedy_and_random_rows_mix() -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(2))
    tokens = sample(logits, batch(4, temperature=[0, 1, 0, 1], seeds=3)).tokens
    assert tokens[[0, 2]].tolist() == logits.argmax(-1)[[0, 2]].tolist()


def test_penalties_follow_their_formulas() -> None:
    logits = torch.tensor([[2.0, -1.0, 1.0, 0.5, 0.0], [2.0, -1.0, 1.0, 0.5, 0.0]])
    history = History(TokenLists(np.array([0, 1, 2, 2, 0, 0]), np.array([0, 4, 6])), np.array([2, 0]))
    rows = batch(
        2,
        repetition_penalty=[2.0, 1.0],
        presence_penalty=[0.25, 1.0],
        frequency_penalty=[0.1, 0.5],
        history=history,
        bias=LogitBias(TokenLists(np.array([4]), np.array([0, 0, 1])), np.array([3.0], np.float32)),
    )
    adjusted = adjust_logits(logits, rows)
    assert torch.allclose(adjusted[0], torch.tensor([1.0, -2.0, 0.5 - 0.25 - 0.2, 0.5, 0.0]))
    assert torch.allclose(adjusted[1], torch.tensor([2.0 - 1.0 - 1.0, -1.0, 1.0, 0.5, 3.0]))
    assert logits[0, 0] == 2.0


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(4))
    result = sample(logits, batch(3, temperature=0.3, top_k=1, logprobs=[-1, 0, 2]))
    logp = torch.log_softmax(logits, -1)
    assert result.logprobs is not None
    assert np.allclose(result.logprobs.chosen, logp.amax(-1).numpy())
    assert np.allclose(result.logprobs.top, logp.topk(2).values.numpy())
    assert sample(logits, SamplingBatch.greedy(3)).logprobs is None


def test_bfloat16_logits_work() -> None:
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(5)).bfloat16()
    assert sample(logits, batch(2, temperature=1.0, top_p=0.9, logprobs=3)).tokens.shape == (2,)


def test_nan_logits_are_refused_and_name_the_row() -> None:
    logits = torch.zeros(3, 10)
    logits[1, 4] = float("nan")
    with pytest.raises(EngineError, match=r"\[1\]"):
        sample(logits, SamplingBatch.greedy(3))


def test_penalties_without_history_are_refused() -> None:
    with pytest.raises(EngineError, match="history"):
        batch(1, presence_penalty=0.5)
