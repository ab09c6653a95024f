"""Every kind of attention through the real cache and scheduler: logits and greedy tokens of the dense forward."""

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
from tests.runtime.recording_engine import RecordingEngine
from tidegate.engine.reference import EngineOptions, ReferenceEngine, WindowPattern
from tidegate.request import RequestOutput, SamplingParams
from tidegate.runtime import LLM

ARCHITECTURES = ("llama", "windowed llama", "mistral", "gemma3_text", "gpt_oss", "qwen3")
PROMPTS, CHUNK, DECODE, BLOCK = (300, 286, 217), 64, 40, 16  # 286: the last query that reads its window's oldest page
TOLERANCE = 1e-4
GREEDY = SamplingParams(temperature=0.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "scratch": {},
    "no-scratch": {"swa_scratch_reuse": False},
    "overlap": {"overlap": True},
    "tight": {"headroom_blocks": 0},
    "tight-overlap-no-scratch": {"headroom_blocks": 0, "overlap": True, "swa_scratch_reuse": False},
}
TIGHT = {"mistral": (10,), "windowed llama": (30, 30)}  # slots; a full layer takes 22 for the longest request
CASES = [
    *((window, settings) for window in (32, 48) for settings in ("scratch", "no-scratch", "overlap")),
    (48, "tight"),
    (32, "tight-overlap-no-scratch"),
]


def open_llm(engine: RecordingEngine, settings: str, tight_pool: tuple[int, ...]) -> LLM:
    values: dict[str, Any] = {
        "max_seq_len": 352,
        "max_batch_size": 4,
        "max_num_tokens": 2 * CHUNK,
        "max_chunk_tokens": CHUNK,
        "max_partial_prefills": 2,
        "tokens_per_block": BLOCK,
        **({"pool_slots": tight_pool} if settings.startswith("tight") else {"device_bytes": 1 << 24}),
        **SETTINGS[settings],
    }
    return LLM(engine=engine, **values)


def check(dense: DenseReference, engine: RecordingEngine, outputs: list[RequestOutput]) -> None:
    """Hold every logit that was computed and every token that was drawn against whole contexts."""
    contexts = [[*output.prompt.tolist(), *output.tokens.tolist()[:-1]] for output in outputs]
    for output, context, pieces in zip(outputs, contexts, engine.by_context(contexts), strict=True):
        expected = dense.logits(context, last=len(context))
        is_computed = np.zeros(len(context), dtype=bool)
        for piece in pieces:
            is_computed[piece.start : piece.end] = True
            assert (piece.logits - expected[piece.start : piece.end]).abs().max() < TOLERANCE
        assert is_computed[output.num_cached_tokens :].all()
        best = expected[len(output.prompt) - 1 :].max(dim=-1).values
        drawn = expected[len(output.prompt) - 1 :].gather(1, torch.from_numpy(output.tokens).long()[:, None])[:, 0]
        assert output.num_tokens == DECODE
        assert (best - drawn).max() < TIE


@pytest.mark.parametrize(("window", "settings"), CASES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_three_requests_together_and_again(architecture: str, window: int, settings: str) -> None:
    pattern = WindowPattern(window=window, sink_tokens=4) if architecture == "windowed llama" else None
    sliding: dict[str, Any] = {} if "llama" in architecture else {"sliding_window": window}
    model = tiny_model(architecture.removeprefix("windowed "), **sliding)
    engine = RecordingEngine(ReferenceEngine(copy.deepcopy(model), EngineOptions(windows=pattern)))
    dense = DenseReference(model, pattern)
    rng = np.random.default_rng(window)
    prompts = [rng.integers(3, 131, length).tolist() for length in PROMPTS]

    windows = [layer.window for layer in engine.kv_layers()]
    is_tight = settings.startswith("tight")
    with open_llm(engine, settings, TIGHT.get(architecture, (30,))) as llm:
        for _ in range(2):  # the second time what the first left is reused
            engine.pieces.clear()
            check(dense, engine, llm.generate(prompts, GREEDY, max_tokens=DECODE, ignore_eos=True))
            llm.manager.audit()
        statistics, groups = llm.statistics(), llm.manager.statistics().groups

    assert (statistics.hit_tokens > 0) or is_tight
    if None in windows:  # windows alone need no more pages as they move on
        assert (statistics.suspended > 0) == is_tight
    assert (sum(group.scratch_blocks_served for group in groups) > 0) == (any(windows) and "no-scratch" not in settings)
