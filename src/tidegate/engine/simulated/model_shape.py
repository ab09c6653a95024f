"""The shape of a model: what its layers cache, weigh and compute."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import BufferSpec, LayerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One kind of attention. ``parts`` are the caches of one layer, as layers without ids.

    A query and a cached entry cost ``pair_flops``; a query looks at no more than ``most_entries`` of a compressed
    layer. ``num_parameters`` are the projections'.
    """

    parts: tuple[LayerSpec, ...]
    num_parameters: int
    pair_flops: int
    most_entries: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A layer's feed-forward part: parameters that every token passes, and experts of which it passes ``top_k``."""

    num_parameters: int
    num_experts: int = 0
    expert_parameters: int = 0
    top_k: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as layers of ``(attention, feed_forward)``; bytes per parameter of experts and of all else."""

    name: str
    hidden: int
    vocab_size: int
    layers: tuple[tuple[Attention, FeedForward], ...]
    is_tied: bool = False
    weight_bytes_each: float = 2.0
    expert_bytes_each: float = 2.0

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Return all caches, numbered."""
        parts = [part for attention, _ in self.layers for part in attention.parts]
        return tuple(
            LayerSpec(
                i,
                part.attention,
                part.buffers,
                window=part.window,
                sink_tokens=part.sink_tokens,
                block_tokens=part.block_tokens,
                ratio=part.ratio,
                scratch=part.scratch,
            )
            for i, part in enumerate(parts)
        )

    @property
    def embedding_parameters(self) -> int:
        """Parameters of input and output embeddings."""
        return self.vocab_size * self.hidden * (1 if self.is_tied else 2)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts."""
        return sum(forward.num_experts * forward.expert_parameters for _, forward in self.layers)

    @property
    def dense_parameters(self) -> int:
        """Parameters of all that is no expert."""
        own = sum(attention.num_parameters + forward.num_parameters for attention, forward in self.layers)
        return own + self.embedding_parameters

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, without norms and biases."""
        return self.dense_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes, with both embeddings."""
        return self.dense_parameters + sum(forward.top_k * forward.expert_parameters for _, forward in self.layers)

    def weight_bytes(self, num_ranks: int = 1, tensor_parallel: int = 1) -> int:
        """Return bytes of weights on one accelerator: experts are spread over all ranks, the rest within a rank."""
        dense = self.dense_parameters * self.weight_bytes_each / tensor_parallel
        experts = self.expert_parameters * self.expert_bytes_each / (tensor_parallel * num_ranks)
        return round(dense + experts)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that a long context caches per token: what grows without bound."""
        return sum(
            buffer.bytes_per_entry / layer.ratio
            for layer in self.kv_layers()
            if layer.retention.value == "full"
            for buffer in layer.buffers
        )

    @property
    def state_bytes(self) -> int:
        """Bytes of state that a request has whatever its length, without windows."""
        return sum(
            buffer.bytes_per_entry
            for layer in self.kv_layers()
            if layer.retention.value == "state"
            for buffer in layer.buffers
        )


def full(*bytes_per_token: int) -> LayerSpec:
    """Return a cache of all tokens; one number is one buffer."""
    return LayerSpec(0, "full_attention", _buffers(bytes_per_token))


def window(size: int, *bytes_per_token: int) -> LayerSpec:
    """Return a cache of the last ``size`` tokens."""
    return LayerSpec(0, "sliding_attention", _buffers(bytes_per_token), window=size)


def compressed(kind: str, ratio: int, *bytes_per_entry: int) -> LayerSpec:
    """Return a cache with an entry for each ``ratio`` tokens."""
    return LayerSpec(0, kind, _buffers(bytes_per_entry), ratio=ratio)


def state(num_bytes: int) -> LayerSpec:
    """Return a state of constant size."""
    return LayerSpec(0, "linear_attention", _buffers((num_bytes,)))


def _buffers(sizes: tuple[int, ...]) -> tuple[BufferSpec, ...]:
    roles = {1: ("kv",), 2: ("key", "value")}[len(sizes)]
    return tuple(BufferSpec(role, size) for role, size in zip(roles, sizes, strict=True))
