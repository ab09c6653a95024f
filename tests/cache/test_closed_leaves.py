"""Sequences that end together leave the same behind as sequences that end in one call but are published singly."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tidegate.base import Int64Array, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.cache.closing import LeafCloser
from tidegate.testing.layouts import full, stacked, window

BLOCK = 4
LONGEST = 64
LAYOUTS = {
    "full": stacked(full()),
    "window": stacked(window(10)),
    "window with sinks": stacked(full(), window(10, sink_tokens=6)),
    "two blocks": stacked(full(block_tokens=4), full(block_tokens=8), window(6)),
}


def build(layers: tuple[LayerSpec, ...]) -> KVCacheManager:
    return KVCacheManager(
        KVCacheConfig(
            layers=layers,
            device_bytes=1 << 13,
            max_sequences=16,
            max_seq_len=LONGEST,
            tokens_per_block=BLOCK,
            max_chunk_tokens=LONGEST,
        ),
        with_memory=False,
    )


class Pair:
    """Two caches that are told the same; one closes in batches, the other singly."""

    def __init__(self, layers: tuple[LayerSpec, ...]) -> None:
        self.batched, self.single = build(layers), build(layers)
        self.single._core.lives._closer.close = lambda rows: (rows, None)  # type: ignore[method-assign]  # the other way to do it
        self.running: dict[int, list[int]] = {}
        self.asked: list[list[int]] = []

    @property
    def both(self) -> tuple[KVCacheManager, KVCacheManager]:
        return self.batched, self.single

    def admit(self, prompts: list[list[int]]) -> bool:
        rows = []
        for manager in self.both:
            quote = manager.quote()
            if not all(quote.admit(manager.candidate(p), len(p)) for p in prompts):
                return False
            with manager.reserve(quote) as reservation:
                reservation.dispatch()
                reservation.keep()
            manager.advance(reservation.rows, reservation.ends, np.ones(len(prompts), np.int32))
            rows.append(reservation.rows.tolist())
        assert rows[0] == rows[1]
        self.running.update(zip(rows[0], (len(p) for p in prompts), strict=True))
        self.asked += prompts
        return True

    def decode(self, rows: Int64Array, tokens: list[int]) -> bool:
        for manager in self.both:
            quote = manager.quote()
            if not quote.add(rows, manager.capacity[rows] + 1):
                return False
            with manager.reserve(quote) as reservation:
                reservation.dispatch()
                reservation.keep()
            manager.advance(reservation.rows, reservation.ends, np.array(tokens, np.int32))
        return True

    def close(self, rows: list[int]) -> None:
        for manager in self.both:
            manager.close(np.array(rows, np.int64))
        for row in rows:
            del self.running[row]

    def check(self) -> None:
        for manager in self.both:
            manager.audit()
            assert manager.statistics() is not None
