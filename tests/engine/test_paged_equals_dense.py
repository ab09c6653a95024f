"""Paged logits equal the model's own dense forward, for every mixture of chunks, decodes, windows and scratch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.engine.paged_run import Paging
from tests.engine.tiny_models import ARCHITECTURES, tiny_model
from tidegate.engine.reference import EngineOptions, ReferenceEngine

PROMPT, CHUNK, DECODE = 300, 64, 40
TOLERANCE = 1e-4


def dense_logits(model: torch.nn.Module, tokens: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    return logits


def run_mixed(paging: Paging, first: np.ndarray, second: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Prefill both in chunks, the second three steps later, then decode both, teacher-forced, in one batch."""
    done = {3: 0, 5: 0}
    logits: dict[int, list[torch.Tensor]] = {3: [], 5: []}
    tokens = {3: first, 5: second}
    step = 0
    while any(done[row] < len(tokens[row]) for row in done):
        work = []
        for row in done if step % 2 else reversed(done):
            if done[row] < len(tokens[row]) and (row == 3 or step >= 3):
                n = min(CHUNK, PROMPT - done[row]) if done[row] < PROMPT else 1
                work.append((row, tokens[row][done[row] : done[row] + n]))
        result = paging.step(work).split([len(t) for _, t in work])
        for (row, part), out in zip(work, result, strict=True):
            logits[row].append(out)
            done[row] += len(part)
        step += 1
    return torch.cat(logits[3]), torch.cat(logits[5])


def test_every_supported_architecture_is_compared() -> None:
    from tidegate.engine.reference.architectures import ARCHITECTURES as SUPPORTED

    assert set(ARCHITECTURES) == SUPPORTED


@pytest.mark.parametrize("kernel", ["torch", "native"])
@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_chunks_and_decodes_of_two_sequences(architecture: str, scratch: bool, kernel: str) -> None:
    model = tiny_model(architecture)
    rng = np.random.default_rng(1)
    first, second = rng.integers(3, 131, (2, PROMPT + DECODE))
    expected = [dense_logits(model, first), dense_logits(model, second)]
    engine = ReferenceEngine(copy.deepcopy(model), EngineOptions(kernel=kernel))
    paging = Paging(engine, scratch=scratch)
    got = run_mixed(paging, first, second)
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine - theirs).abs().max() < TOLERANCE
    assert (paging.scratch_slots_used > 0) == (scratch and any(s.window and s.scratch for s in engine.kv_layers()))


@pytest.mark.parametrize("kernel", ["torch", "native"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "gpt_oss"])
def test_bfloat16_stays_near_the_dense_forward(architecture: str, kernel: str) -> None:
    model = tiny_model(architecture, dtype=torch.bfloat16)
    tokens = np.random.default_rng(2).integers(3, 131, 120)
    expected = dense_logits(tiny_model(architecture), tokens)
    rounding = (dense_logits(model, tokens).float() - expected).abs().mean()
    paging = Paging(ReferenceEngine(model, EngineOptions(kernel=kernel)), scratch=True)
    got = torch.cat([paging.step([(0, tokens[b : b + 40])]) for b in (0, 40, 80)])
    assert got.dtype == torch.bfloat16
    assert (got.float() - expected).abs().mean() < 1.5 * rounding


@pytest.mark.parametrize("block_tokens", [5, 8, 24, 32, 64])
def test_block_size_does_not_change_the_output(block_tokens: int) -> None:
    model = tiny_model("gemma3_text")
    tokens = np.random.default_rng(3).integers(3, 131, 150)
    expected = dense_logits(model, tokens)
    paging = Paging(ReferenceEngine(copy.deepcopy(model), EngineOptions(kernel="native")), block_tokens=block_tokens)
    got = torch.cat([paging.step([(0, tokens[b : b + 50])]) for b in (0, 50, 100)])
    assert (got - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("prepack", [False, True])
def test_packed_linear_layers_change_nothing(prepack: bool) -> None:
    model = tiny_model("qwen2")
    tokens = np.random.default_rng(4).integers(3, 131, 70)
    expected = dense_logits(model, tokens)
    paging = Paging(ReferenceEngine(copy.deepcopy(model), EngineOptions(prepack=prepack)))
    assert (paging.step([(0, tokens)]) - expected).abs().max() < TOLERANCE
