"""The engine's boundary: what it declares, what it binds, which steps it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.paged_run import Paging
from tests.engine.tiny_models import tiny_model
from tidegate.base import ConfigError, EngineError, KVLayout, LayerSpec, PoolMemory, StateError
from tidegate.engine import GroupTables, StepInput
from tidegate.engine.reference import EngineOptions, ReferenceEngine, WindowPattern


class Recording:
    """Keeps the last step an engine was given."""

    def __init__(self, engine: ReferenceEngine) -> None:
        self.engine = engine
        self.step: StepInput
        self.layout: KVLayout
        self.pools: Sequence[PoolMemory]

    @property
    def vocab_size(self) -> int:
        return self.engine.vocab_size

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        return self.engine.kv_layers()

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        self.layout, self.pools = layout, pools
        self.engine.bind(layout, pools)

    def forward(self, step: StepInput) -> torch.Tensor:
        self.step = step
        return self.engine.forward(step)


@pytest.fixture
def ready() -> tuple[Paging, Recording]:
    recording = Recording(ReferenceEngine(tiny_model("gemma3_text")))
    paging = Paging(recording)
    paging.step([(0, np.arange(3, 43)), (1, np.arange(5, 10))])
    return paging, recording


def test_layers_are_declared_in_the_words_of_the_config() -> None:
    layers = ReferenceEngine(tiny_model("gemma3_text")).kv_layers()
    assert [(s.attention, s.window, s.scratch) for s in layers] == [
        ("sliding_attention", 48, True),
        ("full_attention", None, True),
    ] * 2


def test_a_window_in_the_config_that_the_model_ignores_is_ignored() -> None:
    layers = ReferenceEngine(tiny_model("llama", sliding_window=8)).kv_layers()
    assert {s.attention for s in layers} == {"full_attention"}


def test_layers_whose_keys_others_read_take_no_scratch_and_the_readers_keep_nothing() -> None:
    layers = ReferenceEngine(tiny_model("gemma4_text")).kv_layers()
    assert [(s.layer_id, s.scratch) for s in layers] == [(0, False), (1, False)]


def test_a_pattern_puts_windows_on_a_full_attention_model() -> None:
    options = EngineOptions(windows=WindowPattern(window=10, sink_tokens=2, full_every=2))
    layers = ReferenceEngine(tiny_model("llama"), options).kv_layers()
    assert [(s.window, s.sink_tokens) for s in layers] == [(10, 2), (None, 0)] * 2
    with pytest.raises(ConfigError, match="already has a window"):
        ReferenceEngine(tiny_model("mistral"), options)


def test_logits_come_for_the_positions_asked_for_in_their_order(ready: tuple[Paging, Recording]) -> None:
    paging, recording = ready
    everything = paging.step([(0, np.array([7, 8, 9]))])
    paging.history[0] -= 3
    wanted = np.array([2, 0], np.int64)
    logits = recording.engine.forward(dataclasses.replace(recording.step, logit_positions=wanted))
    assert torch.allclose(logits, everything[[2, 0]], atol=1e-5)
    none = recording.engine.forward(dataclasses.replace(recording.step, logit_positions=wanted[:0]))
    assert none.shape == (0, recording.engine.vocab_size)


def test_a_block_to_write_without_a_page_is_refused(ready: tuple[Paging, Recording]) -> None:
    _, recording = ready
    broken = recording.step.groups[0].slots.copy()
    broken[0, 1] = -1
    groups = (GroupTables(broken), *recording.step.groups[1:])
    with pytest.raises(EngineError, match="no page"):
        recording.engine.forward(dataclasses.replace(recording.step, groups=groups))
    narrow = (GroupTables(recording.step.groups[0].slots[:, :1]), *recording.step.groups[1:])
    with pytest.raises(EngineError, match=r"its row has 1$"):
        recording.engine.forward(dataclasses.replace(recording.step, groups=narrow))


def test_tables_that_point_outside_are_refused(ready: tuple[Paging, Recording]) -> None:
    _, recording = ready
    step = recording.step
    beyond = step.groups[1].slots.copy()
    beyond[0, 0] = 10_000
    with pytest.raises(EngineError, match="beyond its pool"):
        recording.engine.forward(dataclasses.replace(step, groups=(step.groups[0], GroupTables(beyond))))
    with pytest.raises(EngineError, match=r"rows \[0 8\]"):
        recording.engine.forward(dataclasses.replace(step, rows=np.array([0, 8])))
    with pytest.raises(EngineError, match="1 page tables for 2"):
        recording.engine.forward(dataclasses.replace(step, groups=step.groups[:1]))
    per_layer = GroupTables(beyond, np.zeros((3, 2, 64), np.int32))
    with pytest.raises(EngineError, match="per-layer tables of shape"):
        recording.engine.forward(dataclasses.replace(step, groups=(step.groups[0], per_layer)))


def test_logits_may_be_changed_in_place(ready: tuple[Paging, Recording]) -> None:
    logits = ready[0].step([(0, np.array([9]))])
    logits[:, 0] = float("-inf")
    assert logits.argmax() != 0


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("token_ids", lambda a: a + 1000, "token ids"),
        ("token_ids", lambda a: a[:-1], "tokens"),
        ("positions", lambda a: a[::-1].copy(), "consecutive"),
        ("positions", lambda a: a - 1, "negative"),
        ("cu_seqlens", lambda a: a[:-1], "ending at"),
        ("cu_seqlens", lambda a: np.array([0, 45, 45], np.int32), "sequences of"),
        ("rows", lambda a: a[:1], "1 rows"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    ready: tuple[Paging, Recording], field: str, change: Callable[[np.ndarray], np.ndarray], reason: str
) -> None:
    _, recording = ready
    changed: dict[str, Any] = {field: change(getattr(recording.step, field))}
    step = dataclasses.replace(recording.step, **changed)
    with pytest.raises(EngineError, match=reason):
        recording.engine.forward(step)


def test_forward_needs_pools_that_fit(ready: tuple[Paging, Recording]) -> None:
    _, recording = ready
    with pytest.raises(StateError, match="before bind"):
        ReferenceEngine(tiny_model("gemma3_text")).forward(recording.step)
    other = ReferenceEngine(tiny_model("gemma3_text", head_dim=16))
    with pytest.raises(ConfigError, match="a sub-page needs"):
        other.bind(recording.layout, recording.pools)
    with pytest.raises(ConfigError, match="no buffer 'key'"):
        other.bind(dataclasses.replace(recording.layout, locations=()), recording.pools)


def test_two_engines_in_one_process_do_not_meet() -> None:
    tokens = np.arange(3, 33)
    models = [tiny_model("llama", seed=s) for s in (0, 1)]
    pagings = [Paging(ReferenceEngine(m)) for m in models]
    first = [p.step([(0, tokens[:20])]) for p in pagings]
    second = [p.step([(0, tokens[20:])]) for p in reversed(pagings)]
    for seed, (head, tail) in enumerate(zip(first, reversed(second), strict=True)):
        expected = tiny_model("llama", seed=seed)(input_ids=torch.from_numpy(tokens)[None]).logits[0]
        assert (torch.cat([head, tail]) - expected).abs().max() < 1e-4
