"""The layout the bars name, managers without memory, and sequences brought to where a measurement starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.base import BufferSpec, Int32Array, Int64Array, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager

WINDOW = 128
BLOCK = 32
LAYERS = 32
VOCABULARY = 200_000
UNKNOWN = -1
FIRST_TOKEN = 7
"""What every sequence samples first."""
_BUFFERS = (BufferSpec("key", 1024), BufferSpec("value", 1024))


def full_layers(count: int = LAYERS) -> tuple[LayerSpec, ...]:
    """Return ``count`` layers of full attention."""
    return tuple(LayerSpec(i, "full_attention", _BUFFERS) for i in range(count))


def windowed_layers(count: int = LAYERS, *, window: int = WINDOW, first: int = 0) -> tuple[LayerSpec, ...]:
    """Return ``count`` windowed layers, numbered from ``first``."""
    return tuple(LayerSpec(first + i, "sliding_attention", _BUFFERS, window=window) for i in range(count))


def hybrid_layers(window: int = WINDOW) -> tuple[LayerSpec, ...]:
    """Return the layout of the bars: 32 layers of full attention and 32 windowed ones."""
    return full_layers() + windowed_layers(window=window, first=LAYERS)


def bookkeeping(config: KVCacheConfig) -> KVCacheManager:
    """Build a manager that owns no bytes: what is measured is bookkeeping."""
    return KVCacheManager(config, with_memory=False)


def prompt(num_tokens: int, seed: int) -> Int32Array:
    """Draw a prompt; the same seed gives the same tokens."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, num_tokens, dtype=np.int32)


def prompts(lengths: Sequence[int], seed: int) -> list[Int32Array]:
    """Draw prompts that share no prefix, one for each length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, length, dtype=np.int32) for length in lengths]


def prefill(manager: KVCacheManager, tokens: Sequence[Int32Array], chunk: int = 2048) -> Int64Array:
    """Admit prompts together and compute them chunk by chunk; afterwards each knows its first sampled token."""
    quote = manager.quote()
    for one in tokens:
        candidate = manager.candidate(one)
        assert quote.admit(candidate, min(len(one), manager.lookup(candidate) + chunk)), quote.shortage
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    rows = reservation.rows
    lengths = np.array([len(one) for one in tokens], np.int64)
    ends = reservation.ends
    while True:
        manager.advance(rows, ends, np.where(ends == lengths, FIRST_TOKEN, UNKNOWN).astype(np.int32))
        done = ends == lengths
        if done.all():
            return reservation.rows
        rows, lengths = rows[~done], lengths[~done]
        ends = np.minimum(ends[~done] + chunk, lengths)
        step(manager, rows, ends)


def step(manager: KVCacheManager, rows: Int64Array, ends: Int64Array) -> None:
    """Quote, reserve and dispatch one step of running sequences."""
    quote = manager.quote()
    assert quote.add(rows, ends), quote.shortage
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Running sequences that decode one token each per step."""

    manager: KVCacheManager
    rows: Int64Array

    def step(self, tokens: Int32Array) -> None:
        """Quote, reserve, write the rows, advance and publish: what a decode step costs the host."""
        manager = self.manager
        quote = manager.quote()
        if not quote.add(self.rows, manager.capacity[self.rows] + 1):
            raise AssertionError(f"short of {quote.shortage} pages")
        with manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        manager.advance(reservation.rows, reservation.ends, tokens)


def running(manager: KVCacheManager, count: int, context: int, seed: int, *, together: int = 64) -> DecodeBatch:
    """Bring ``count`` sequences into decode, lengths staggered so that every step some cross a block border."""
    rows = []
    for begin in range(0, count, together):
        lengths = [context + i % BLOCK for i in range(begin, min(begin + together, count))]
        rows.append(prefill(manager, prompts(lengths, seed + begin)))
    return DecodeBatch(manager, np.concatenate(rows))


def fill_with_cached(manager: KVCacheManager, pages: int, num_tokens: int, seed: int) -> None:
    """Prefill and close sequences until ``pages`` pages have been taken for them; the oldest are evicted as needed."""
    blocks = -(-num_tokens // BLOCK)
    for i in range(-(-pages // blocks)):
        manager.close(prefill(manager, [prompt(num_tokens, seed + i)]))
