"""Drafts on real attention: tokens and log-probabilities are those without, drawn greedily or by a seed."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from tests.engine.tiny_models import tiny_model
from tests.runtime.dense_reference import TIE, DenseReference
from tidegate.engine.reference import EngineOptions, ReferenceEngine
from tidegate.request import RequestOutput, SamplingParams
from tidegate.runtime import LLM

GREEDY = SamplingParams(temperature=0.0, logprobs=2)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlap": {"overlap": True},
    "chunks": {"max_num_tokens": 48},
    "no-scratch": {"swa_scratch_reuse": False},
    "tight": {"pool_slots": (16,), "headroom_blocks": 0},
}


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(5)
    parts = [rng.integers(3, 131, length).tolist() for length in (12, 7, 20)]
    return [part * count for part, count in zip(parts, (9, 8, 3), strict=True)]


def column(output: RequestOutput) -> torch.Tensor:
    return torch.from_numpy(output.tokens).long()[:, None]


def generate(architecture: str, sampling: SamplingParams, **settings: Any) -> tuple[list[RequestOutput], LLM]:
    engine = ReferenceEngine(copy.deepcopy(tiny_model(architecture)), EngineOptions())
    values: dict[str, Any] = {
        "max_seq_len": 256,
        "max_batch_size": 4,
        "max_num_tokens": 256,
        "tokens_per_block": 16,
        **settings,
    }
    if "pool_slots" not in values:
        values["device_bytes"] = 1 << 24
    with LLM(engine=engine, **values) as llm:
        outputs = llm.generate(prompts(), sampling, max_tokens=60, ignore_eos=True)
        llm.manager.audit()
    return outputs, llm


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3_text", "qwen3"])
def test_greedy_tokens_are_the_likeliest_of_the_dense_forward(architecture: str, settings: str) -> None:
    outputs, llm = generate(architecture, GREEDY, num_speculative_tokens=4, **SETTINGS[settings])

    dense = DenseReference(tiny_model(architecture))
    for output in outputs:
        assert output.error is None
        assert output.num_tokens == 60
        expected = dense.logits([*output.prompt.tolist(), *output.tokens.tolist()[:-1]], last=60)
        drawn = expected.gather(1, column(output))[:, 0]
        assert (expected.max(dim=-1).values - drawn).max() < TIE
        logprobs = expected.log_softmax(dim=-1).gather(1, column(output))[:, 0].tolist()
        assert output.logprobs is not None
        assert [entry.token for entry in output.logprobs] == output.tokens.tolist()
        assert np.allclose([entry.logprob for entry in output.logprobs], logprobs, atol=1e-4)
    assert llm.statistics().accepted_tokens > 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_draws_depend_on_seed_and_position_alone(architecture: str, overlap: bool) -> None:
    params = SamplingParams(temperature=0.8, top_p=0.9, seed=12, logprobs=0)
    plain, _ = generate(architecture, params)
    drafted, llm = generate(architecture, params, num_speculative_tokens=4, prompt_lookup_min=1, overlap=overlap)

    assert llm.statistics().draft_tokens > 0
    for one, other in zip(plain, drafted, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert np.allclose([e.logprob for e in one.logprobs], [e.logprob for e in other.logprobs], atol=1e-4)
