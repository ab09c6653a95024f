"""Step times from what must be read and computed: the slower of both, kind of layer by kind of layer.

The roofline model of Williams, Waterman and Patterson (2009), with the share of each rate that kernels reach.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tidegate.base import ConfigError, Int64Array, LayerSpec, Retention
from tidegate.engine.simulated.fleet_step import FleetStep, Float64Array, StepTime
from tidegate.engine.simulated.hardware import Hardware
from tidegate.engine.simulated.linear import rank_sums
from tidegate.engine.simulated.model_shape import Attention, FeedForward, ModelShape

_ACTIVATION_BYTES = 2


class RooflineCost:
    """``num_ranks`` of ``tensor_parallel`` accelerators each. Experts are spread over all of them.

    A rank's own time is attention, dense layers and its all-reduces; experts and the exchange of tokens with them are
    shared. ``host_s`` replaces the preset's.
    """

    def __init__(
        self,
        model: ModelShape,
        hardware: Hardware,
        *,
        num_ranks: int = 1,
        tensor_parallel: int = 1,
        host_s: float | None = None,
    ) -> None:
        self._model = model
        self._hardware = hardware
        self._num_ranks = num_ranks
        self._tp = tensor_parallel
        self._host_s = hardware.host_step_s if host_s is None else host_s
        self._bandwidth = hardware.memory_bytes_per_s * hardware.memory_share
        self._flops = hardware.flops_per_s * hardware.flops_share
        self._gemm_flops = self._flops_of(model.weight_bytes_each)
        self._expert_flops = self._flops_of(model.expert_bytes_each)
        self._attentions = Counter(attention for attention, _ in model.layers)
        self._forwards = Counter(forward for _, forward in model.layers)

    def step_time(self, step: FleetStep) -> StepTime:
        """Return the time of one step."""
        lengths = step.ends - step.starts
        tokens = rank_sums(step, lengths)
        rank_s = self._gemm_s(self._model.vocab_size * self._model.hidden, step.num_logits.astype(np.float64))
        shared_s = 0.0
        for attention, count in self._attentions.items():
            rank_s += count * (self._gemm_s(attention.num_parameters, tokens) + self._attention_s(attention, step))
        for forward, count in self._forwards.items():
            rank_s += count * self._gemm_s(forward.num_parameters, tokens)
            if forward.num_experts:
                shared_s += count * self._expert_s(forward, tokens)
        rank_s += len(self._model.layers) * self._all_reduce_s(tokens)
        rank_s += step.copied_bytes / self._hardware.host_bytes_per_s
        return StepTime(rank_s, shared_s, self._host_s)

    def _flops_of(self, bytes_each: float) -> float:
        rate = self._hardware.flops_per_s if bytes_each > 1 else self._hardware.flops_per_s_8bit
        return rate * self._hardware.flops_share

    def _gemm_s(self, parameters: int, tokens: Float64Array) -> Float64Array:
        """Return the time of a dense layer per rank: weights are read once, if there are tokens at all."""
        read = parameters * self._model.weight_bytes_each / (self._tp * self._bandwidth)
        computed = 2.0 * parameters * tokens / (self._tp * self._gemm_flops)
        return np.where(tokens > 0, np.maximum(read, computed), 0.0)

    def _attention_s(self, attention: Attention, step: FleetStep) -> Float64Array:
        read, flops = np.zeros(step.num_ranks), np.zeros(step.num_ranks)
        for part in attention.parts:
            size = sum(buffer.bytes_per_entry for buffer in part.buffers)
            if part.retention is Retention.STATE:
                # A state is read and written once, however long the chunk.
                read += 2.0 * size * np.diff(step.splits)
                continue
            entries, pairs = _looked_at(part, attention.most_entries, step.starts, step.ends)
            read += size * rank_sums(step, entries)
            flops += attention.pair_flops * rank_sums(step, pairs)
        return np.maximum(read / (self._tp * self._bandwidth), flops / (self._tp * self._flops))

    def _expert_s(self, forward: FeedForward, tokens: Float64Array) -> float:
        """Return the shared time of one layer's experts: all tokens of the fleet, spread over all accelerators.

        Of E experts, N tokens that pick k each touch E (1 - (1 - k/E)^N) when they pick independently.
        """
        total = float(tokens.sum())
        if not total:
            return 0.0
        share = forward.top_k / forward.num_experts
        touched = forward.num_experts * (1.0 - float((1.0 - share) ** total))
        spread = self._num_ranks * self._tp
        read = touched * forward.expert_parameters * self._model.expert_bytes_each / (spread * self._bandwidth)
        computed = 2.0 * forward.expert_parameters * forward.top_k * total / (spread * self._expert_flops)
        moved = 0.0
        if self._num_ranks > 1:
            sent = float(tokens.max()) * min(forward.top_k, self._num_ranks - 1)
            moved = sent * self._model.hidden * _ACTIVATION_BYTES / (self._hardware.link_bytes_per_s * self._tp)
            moved = 2.0 * (moved + self._hardware.link_latency_s)
        return max(read, computed) + moved

    def _all_reduce_s(self, tokens: Float64Array) -> Float64Array:
        """Return the time of one layer's two all-reduces: a ring moves 2 (n - 1) / n of the data each way."""
        if self._tp == 1:
            return np.zeros(len(tokens))
        data = tokens * self._model.hidden * _ACTIVATION_BYTES
        ring = 2.0 * (self._tp - 1) / self._tp * data / self._hardware.link_bytes_per_s
        return np.where(tokens > 0, 2.0 * (ring + self._hardware.link_latency_s), 0.0)


def _looked_at(
    part: LayerSpec, most_entries: int | None, starts: Int64Array, ends: Int64Array
) -> tuple[Float64Array, Float64Array]:
    """Return entries read and pairs of query and entry computed, per sequence, float64 ``[n]`` each."""
    reach = part.window
    if part.ratio > 1 and most_entries is not None:
        reach = most_entries * part.ratio
    entries = ends.astype(np.float64)
    if reach is not None:
        entries = np.minimum(entries, reach + (ends - starts) - 1.0)
    return entries / part.ratio, (_pairs_until(ends, reach) - _pairs_until(starts, reach)) / part.ratio


def _pairs_until(ends: Int64Array, reach: int | None) -> Float64Array:
    """Return the sum over queries before ``ends`` of the positions each sees, itself counted."""
    x = ends.astype(np.float64)
    if reach is None:
        return x * (x + 1.0) / 2.0
    inside = np.minimum(x, reach)
    return inside * (inside + 1.0) / 2.0 + (x - inside) * reach


def memory_left(
    model: ModelShape, hardware: Hardware, *, num_ranks: int = 1, tensor_parallel: int = 1, utilization: float = 0.9
) -> int:
    """Return bytes of a rank that weights leave to the cache. Raises ``ConfigError`` when they do not fit."""
    weights = model.weight_bytes(num_ranks, tensor_parallel)
    left = int((hardware.memory_bytes * utilization - weights) * tensor_parallel)
    if left <= 0:
        raise ConfigError(
            f"model={model.name}: {weights / 1e9:.1f} GB of weights do not fit {hardware.name}'s "
            f"{hardware.memory_bytes / 1e9:.0f} GB at {utilization:.0%}; use more ranks or a higher "
            "cost.tensor_parallel",
            field="cost.tensor_parallel",
        )
    return left
