"""The reference engine: a ``transformers`` model whose attention reads and writes pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from tidegate.base import ConfigError, EngineError, KVLayout, LayerSpec, PoolMemory, StateError
from tidegate.engine.interface import StepInput
from tidegate.engine.reference.architectures import check_architecture
from tidegate.engine.reference.attention import AttentionKernel, LayerCall
from tidegate.engine.reference.attention_hook import ATTENTION_NAME, register_attention
from tidegate.engine.reference.checkpoint import Checkpoint, default_cache, load_model
from tidegate.engine.reference.layer_probe import LayerTrace, declare_layers, probe_layers
from tidegate.engine.reference.native_attention import NativeAttention
from tidegate.engine.reference.options import EngineOptions
from tidegate.engine.reference.packed_linear import pack_linear_layers
from tidegate.engine.reference.step_checks import StepChecks
from tidegate.engine.reference.step_pages import BoundLayer, PoolBinder, spans_of
from tidegate.engine.reference.torch_attention import TorchAttention

_DEFAULT_OPTIONS = EngineOptions()


class ReferenceEngine:
    """Runs a causal language model of ``transformers`` over pages.

    Takes the model over: its attention is replaced, so keep no other use for the object.
    """

    def __init__(self, model: PreTrainedModel, options: EngineOptions = _DEFAULT_OPTIONS) -> None:
        check_architecture(model.config)
        if model.dtype not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"model dtype {model.dtype} is not supported: float32 or bfloat16")
        register_attention()
        model.set_attn_implementation(ATTENTION_NAME)
        model.eval()
        if options.prepack or (options.prepack is None and model.dtype is torch.bfloat16):
            pack_linear_layers(model)
        self._model = model
        self._kernel = _choose_kernel(options)
        self._traces = {t.layer_id: t for t in probe_layers(model, options.windows)}
        self._checks: StepChecks | None = None
        self._layers: dict[int, BoundLayer] = {}

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, options: EngineOptions = _DEFAULT_OPTIONS) -> ReferenceEngine:
        """Load a model and build an engine on it."""
        return cls(load_model(checkpoint), options)

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return int(self._model.config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int:
        """Positions the model was made for; beyond them it computes, but was never trained."""
        return int(self._model.config.get_text_config().max_position_embeddings)

    @property
    def dtype(self) -> str:
        """What keys, values and weights are kept in: ``float32`` or ``bfloat16``."""
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def kernel(self) -> str:
        """The attention kernel in use: ``native`` or ``torch``."""
        return self._kernel.name

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Declare the layers that keep keys and values."""
        return declare_layers(tuple(self._traces.values()))

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """View the pools as keys and values. Raises ``ConfigError`` when the layout does not fit the model."""
        binder = PoolBinder(layout, pools, self._model.dtype)
        self._layers = {t.layer_id: binder.bind(t) for t in self._traces.values() if t.kv_source == t.layer_id}
        self._checks = StepChecks(self.vocab_size, layout, pools)

    def forward(self, step: StepInput) -> torch.Tensor:
        """Compute the step; return logits ``[m, vocab_size]`` in the model's dtype."""
        if self._checks is None:
            raise StateError("forward before bind: the engine has no pools")
        self._checks.check(step)
        attention = _StepAttention(step, self._kernel, self._layers, self._traces)
        try:
            with torch.no_grad():
                result = self._model(
                    input_ids=torch.tensor(step.token_ids).unsqueeze(0),
                    position_ids=torch.tensor(step.positions).unsqueeze(0),
                    use_cache=False,
                    logits_to_keep=torch.tensor(step.logit_positions),
                    tidegate=attention,
                )
        except (RuntimeError, IndexError) as error:
            raise EngineError(f"the step of {step.token_ids.size} tokens failed: {error}") from error
        logits: torch.Tensor = result.logits[0]
        return logits


def _choose_kernel(options: EngineOptions) -> AttentionKernel:
    if options.kernel == "torch":
        return TorchAttention()
    native = NativeAttention.load(options.cache or default_cache())
    if native is None and options.kernel == "native":
        raise ConfigError("kernel='native' cannot be built here (the log says why); use 'auto' or 'torch'")
    return native or TorchAttention()


class _StepAttention:
    """Answers the model's attention layers with one step's pages."""

    def __init__(
        self,
        step: StepInput,
        kernel: AttentionKernel,
        layers: dict[int, BoundLayer],
        traces: dict[int, LayerTrace],
    ) -> None:
        self._step = step
        self._spans = spans_of(step)
        self._kernel = kernel
        self._layers = layers
        self._traces = traces

    def attend(self, call: LayerCall) -> torch.Tensor:
        trace = self._traces[call.layer_id]
        owns_pages = trace.kv_source == trace.layer_id
        call = dataclasses.replace(call, window=trace.window, sink_tokens=trace.sink_tokens, owns_pages=owns_pages)
        layer = self._layers[trace.kv_source]
        keys, values = layer.keys.in_step(self._step), layer.values.in_step(self._step)
        return self._kernel.attend(call, self._spans, keys, values)
