"""Log-probabilities of the prompt's own tokens are those of the dense forward, however the prompt is computed."""

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
from tests.runtime.dense_reference import DenseReference
from tidegate.base import ConfigError
from tidegate.engine.reference import EngineOptions, ReferenceEngine
from tidegate.request import FinishReason, RequestOutput, SamplingParams, token_array
from tidegate.runtime import LLM
from tidegate.testing.serving import make_request

PROMPTS = (150, 83, 40)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "small chunks": {"max_chunk_tokens": 32},
    "overlap": {"max_chunk_tokens": 32, "overlap": True},
    "suspended": {"pool_slots": (20,), "headroom_blocks": 0},
}


def open_llm(architecture: str, **settings: Any) -> tuple[LLM, DenseReference]:
    model = tiny_model(architecture)
    values = {"max_seq_len": 256, "max_batch_size": 4, "max_num_tokens": 512, "tokens_per_block": 16, **settings}
    if "pool_slots" not in values:
        values["device_bytes"] = 1 << 24
    return LLM(engine=ReferenceEngine(copy.deepcopy(model), EngineOptions()), **values), DenseReference(model)


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(3, 131, length).tolist() for length in PROMPTS]


def check(dense: DenseReference, output: RequestOutput, num_top: int) -> None:
    prompt, found = output.prompt.tolist(), output.prompt_logprobs
    assert found is not None
    assert len(found) == len(prompt)
    assert found[0] is None
    expected = torch.log_softmax(dense.logits(prompt, last=len(prompt)).float(), dim=-1)
    for position in range(1, len(prompt)):
        scored = found[position]
        assert scored is not None
        assert scored.token == prompt[position]
        assert abs(scored.logprob - float(expected[position - 1, prompt[position]])) < 1e-4
        best = expected[position - 1].topk(num_top).values.tolist()
        assert len(scored.top) == num_top
        assert np.allclose([logprob for _, logprob in scored.top], best, atol=1e-4)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_equal_the_dense_forward(architecture: str, settings: str) -> None:
    llm, dense = open_llm(architecture, **SETTINGS[settings])
    with llm:
        for _ in range(2):  # the second time nothing may be reused
            params = SamplingParams(temperature=0.0, logprobs=2)
            outputs = llm.generate(prompts(), params, max_tokens=60, ignore_eos=True, prompt_logprobs=True)
            for output in outputs:
                assert output.num_cached_tokens == 0
                assert output.logprobs is not None
                check(dense, output, 2)
        assert (llm.statistics().suspended > 0) == (settings == "suspended")


def test_beside_requests_that_do_not_ask() -> None:
    llm, dense = open_llm("llama")
    with llm:
        first, second, third = (
            make_request(name, prompt, prompt_logprobs=name == "b", max_tokens=3)
            for name, prompt in zip("abc", prompts(), strict=True)
        )
        for request in (first, second, third):
            llm.session.submit(request)
        ended: dict[str, RequestOutput] = {}
        while llm.session.has_work:
            ended |= {delta.request_id: delta.output for delta in llm.session.step() if delta.output is not None}
    check(dense, ended["b"], 0)
    assert ended["a"].prompt_logprobs is None
    assert ended["c"].prompt_logprobs is None


def test_what_was_not_scored_is_none() -> None:
    llm, _ = open_llm("llama", max_chunk_tokens=32)
    with llm:
        llm.session.submit(make_request("a", prompts()[0], prompt_logprobs=True))
        llm.session.step()
        llm.session.abort("a")
        (delta,) = llm.session.step()
    assert delta.output is not None
    assert delta.output.finish_reason is FinishReason.ABORTED
    found = delta.output.prompt_logprobs
    assert found is not None
    assert [entry is not None for entry in found] == [False, *[True] * 32, *[False] * 117]


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    llm, _ = open_llm("llama")
    with llm:
        (output,) = llm.generate([token_array([5]).tolist()], max_tokens=2, prompt_logprobs=True)
    assert output.prompt_logprobs == (None,)


def test_odd_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="prompt_logprobs"):
        make_request("a", 5, prompt_logprobs="yes")
