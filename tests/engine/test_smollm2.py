"""The real model: the same greedy text as transformers, and windows with sinks equal to a dense mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.paged_run import Paging
from tidegate.engine.reference import Checkpoint, EngineOptions, ReferenceEngine, WindowPattern

PROMPTS = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time there was a lighthouse keeper who",
)
NEW_TOKENS = 32
END = 2


def greedy(paging: Paging, prompts: list[np.ndarray], chunk: int) -> list[list[int]]:
    """Prefill each prompt in chunks, one after the other, then decode all together."""
    out: list[list[int]] = []
    for row, prompt in enumerate(prompts):
        for begin in range(0, len(prompt), chunk):
            logits = paging.step([(row, prompt[begin : begin + chunk])])
        out.append([int(logits[-1].argmax())])
    for _ in range(NEW_TOKENS - 1):
        logits = paging.step([(row, np.array([tokens[-1]])) for row, tokens in enumerate(out)])
        for tokens, row_logits in zip(out, logits, strict=True):
            tokens.append(int(row_logits.argmax()))
    return out


@pytest.fixture(scope="module")
def reference(smollm2: Path) -> list[tuple[np.ndarray, list[int]]]:
    """Each prompt's tokens and what ``generate`` continues them with."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2)
    out = []
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, return_tensors="pt").input_ids
        text = model.generate(tokens, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=END)
        out.append((tokens[0].numpy(), text[0, tokens.shape[1] :].tolist()))
    return out


@pytest.mark.parametrize("kernel", ["torch", "native"])
def test_greedy_text_is_that_of_transformers(
    smollm2: Path, reference: list[tuple[np.ndarray, list[int]]], kernel: str
) -> None:
    engine = ReferenceEngine.from_checkpoint(Checkpoint(smollm2, "float32"), EngineOptions(kernel=kernel))
    got = greedy(Paging(engine), [prompt for prompt, _ in reference], chunk=7)
    assert max(len(theirs) for _, theirs in reference) == NEW_TOKENS
    for mine, (_, theirs) in zip(got, reference, strict=True):
        assert mine[: len(theirs)] == theirs


@pytest.mark.parametrize("kernel", ["torch", "native"])
@pytest.mark.parametrize("scratch", [False, True])
def test_windows_with_sinks_equal_a_dense_mask(smollm2: Path, scratch: bool, kernel: str) -> None:
    window, sinks, n = 32, 4, 150
    tokens = np.random.default_rng(0).integers(0, 49152, n)
    pattern = WindowPattern(window=window, sink_tokens=sinks, full_every=3)
    engine = ReferenceEngine.from_checkpoint(
        Checkpoint(smollm2, "float32"), EngineOptions(kernel=kernel, windows=pattern)
    )
    paging = Paging(engine, scratch=scratch)
    got = torch.cat([paging.step([(0, tokens[b : b + 64])]) for b in (0, 64, 128)])
    assert (got - _dense_with_mask(smollm2, tokens, pattern)).abs().max() < 1e-4
    assert (paging.scratch_slots_used > 0) == scratch


def _dense_with_mask(path: Path, tokens: np.ndarray, pattern: WindowPattern) -> torch.Tensor:
    """Run the unpaged model with each layer's mask written out."""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    p = torch.arange(len(tokens))
    causal = p[None, :] <= p[:, None]
    windowed = causal & ((p[None, :] > p[:, None] - pattern.window) | (p[None, :] < pattern.sink_tokens))
    for i, layer in enumerate(model.model.layers):
        mask = causal if (i + 1) % pattern.full_every == 0 else windowed
        bias = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))[None, None]
        layer.self_attn.register_forward_pre_hook(
            lambda _module, args, kwargs, bias=bias: (args, {**kwargs, "attention_mask": bias}), with_kwargs=True
        )
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    return logits
