"""Learn a model's layers by running one token through it, instead of guessing from its configuration.

What the attention layers really pass (window, heads, whose keys they read) is what the cache has to keep; a stray
``sliding_window`` key in a config, which some models ignore, changes nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from tidegate.base import BufferSpec, ConfigError, LayerSpec
from tidegate.engine.reference.attention import LayerCall
from tidegate.engine.reference.options import WindowPattern

KEY_ROLE = "key"
VALUE_ROLE = "value"


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """One attention layer as it was called. ``kv_source`` is the layer whose keys and values it reads."""

    layer_id: int
    kv_source: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    sink_tokens: int
    itemsize: int


class _Recorder:
    """Answers attention with zeros and keeps what it was asked."""

    def __init__(self, pattern: WindowPattern | None) -> None:
        self._pattern = pattern
        self._calls: list[LayerCall] = []
        self.traces: list[LayerTrace] = []

    def attend(self, call: LayerCall) -> torch.Tensor:
        source = next((c.layer_id for c in self._calls if c.key is call.key), call.layer_id)
        window, sink_tokens = resolve_window(call, self._pattern)
        self.traces.append(
            LayerTrace(
                layer_id=call.layer_id,
                kv_source=source,
                kv_heads=call.key.shape[1],
                key_dim=call.key.shape[3],
                value_dim=call.value.shape[3],
                window=window,
                sink_tokens=sink_tokens,
                itemsize=call.key.element_size(),
            )
        )
        self._calls.append(call)
        return call.query.new_zeros(call.query.shape[2], call.query.shape[1], call.value.shape[3])


def resolve_window(call: LayerCall, pattern: WindowPattern | None) -> tuple[int | None, int]:
    """Return the window and sink tokens this layer runs with: the pattern's if there is one, else the model's."""
    if pattern is None:
        return call.window, 0
    if call.window is not None:
        raise ConfigError(
            f"layer {call.layer_id} already has a window of {call.window}: windows= is for full-attention models"
        )
    return (None, 0) if pattern.is_full(call.layer_id) else (pattern.window, pattern.sink_tokens)


def probe_layers(model: PreTrainedModel, pattern: WindowPattern | None) -> tuple[LayerTrace, ...]:
    """Run one token through the model and return its attention layers in the order they run."""
    recorder = _Recorder(pattern)
    token = torch.zeros((1, 1), dtype=torch.long)
    with torch.inference_mode():
        model(input_ids=token, position_ids=token, use_cache=False, tidegate=recorder)
    traces = tuple(recorder.traces)
    expected = model.config.get_text_config().num_hidden_layers
    if sorted(t.layer_id for t in traces) != list(range(expected)):
        raise ConfigError(
            f"model type {model.config.model_type!r}: {len(traces)} of {expected} layers attend through the attention "
            "interface; models with recurrent or convolutional layers are not supported"
        )
    return traces


def declare_layers(traces: tuple[LayerTrace, ...]) -> tuple[LayerSpec, ...]:
    """Declare the layers that own keys and values; one that another layer reads takes no scratch."""
    read_by_others = {t.kv_source for t in traces if t.kv_source != t.layer_id}
    return tuple(
        LayerSpec(
            layer_id=t.layer_id,
            attention="full_attention" if t.window is None else "sliding_attention",
            buffers=(
                BufferSpec(KEY_ROLE, t.kv_heads * t.key_dim * t.itemsize),
                BufferSpec(VALUE_ROLE, t.kv_heads * t.value_dim * t.itemsize),
            ),
            window=t.window,
            sink_tokens=t.sink_tokens,
            scratch=t.layer_id not in read_by_others,
        )
        for t in traces
        if t.kv_source == t.layer_id
    )
