"""Random models and prompts: layer groups of every life cycle, sized so that collisions and pressure are common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.base import BufferSpec, LayerSpec
from tidegate.testing.choices import Choose, chance, one_of

_WINDOWS = (1, 2, 3, 4, 5, 8, 9, 16, 17)
_SINKS = (0, 0, 0, 1, 5)
_ENTRY_BYTES = (8, 16, 24, 12)


_KEY_VALUE = (BufferSpec("key", 16), BufferSpec("value", 16))


def full(*, block_tokens: int | None = None) -> LayerSpec:
    """Return a small full-attention layer."""
    return LayerSpec(0, "full_attention", _KEY_VALUE, block_tokens=block_tokens)


def window(size: int, *, sink_tokens: int = 0, block_tokens: int | None = None) -> LayerSpec:
    """Return a small sliding-window layer."""
    return LayerSpec(0, "sliding_attention", _KEY_VALUE, size, sink_tokens, block_tokens)


def state() -> LayerSpec:
    """Return a small layer with a running state."""
    return LayerSpec(0, "linear_attention", _KEY_VALUE)


def stacked(*layers: LayerSpec) -> tuple[LayerSpec, ...]:
    """Number layers in the order given."""
    return tuple(replace(layer, layer_id=i) for i, layer in enumerate(layers))


@dataclass(frozen=True, slots=True)
class Layout:
    """Layers and the block size they divide or multiply."""

    layers: tuple[LayerSpec, ...]
    tokens_per_block: int


def build_layout(choose: Choose) -> Layout:
    """Choose one to three layer groups; equal entry sizes make them share a pool group, others do not."""
    tokens_per_block = one_of(choose, (4, 2, 8, 1))
    entry_bytes = one_of(choose, _ENTRY_BYTES)
    layers: list[LayerSpec] = []
    for _ in range(choose(1, 3)):
        if chance(choose, 30):
            entry_bytes = one_of(choose, _ENTRY_BYTES)
        kind = one_of(choose, ("full", "window", "window", "state", "compressed"))
        block_tokens = tokens_per_block * one_of(choose, (1, 1, 2))
        buffers = tuple(BufferSpec(role, entry_bytes) for role in ("key", "value")[: choose(1, 2)])
        layers += [_layer(choose, kind, block_tokens, buffers)] * choose(1, 3)
    return Layout(stacked(*layers), tokens_per_block)


def _layer(choose: Choose, kind: str, block_tokens: int, buffers: tuple[BufferSpec, ...]) -> LayerSpec:
    if kind == "full":
        return LayerSpec(0, "full_attention", buffers, block_tokens=block_tokens)
    if kind == "state":
        return LayerSpec(0, "linear_attention", buffers)
    if kind == "compressed":
        ratio = one_of(choose, tuple(r for r in (1, 2, 4) if block_tokens % r == 0))
        return LayerSpec(0, "compressed_sparse_attention", buffers, block_tokens=block_tokens, ratio=ratio)
    return LayerSpec(
        0,
        "sliding_attention",
        buffers,
        window=one_of(choose, _WINDOWS),
        sink_tokens=one_of(choose, _SINKS),
        block_tokens=block_tokens,
        scratch=not chance(choose, 20),
    )


def build_texts(choose: Choose, count: int, length: int, vocab_size: int) -> list[list[int]]:
    """Choose texts of which any two share a prefix of any length, over few different tokens."""
    texts = [[choose(0, vocab_size - 1) for _ in range(length)]]
    while len(texts) < count:
        shared = choose(0, length - 1)
        head = one_of(choose, texts)[:shared]
        texts.append(head + [choose(0, vocab_size - 1) for _ in range(length - shared)])
    return texts


def build_prompt(choose: Choose, texts: Sequence[Sequence[int]], most: int, vocab_size: int) -> list[int]:
    """Choose a prompt: a head of one of the texts and up to two tokens of its own."""
    text = one_of(choose, texts)
    head = list(text[: choose(1, min(most, len(text)))])
    tail = [choose(0, vocab_size - 1) for _ in range(choose(0, 2))]
    return (head + tail)[:most]
