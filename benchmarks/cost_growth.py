"""P6: what must not grow: a decode step with context, a match with the number of cached sequences, memory per page."""

from __future__ import annotations

import statistics
import tracemalloc
from dataclasses import dataclass

import numpy as np

from benchmarks.case import Case
from benchmarks.sequences import BLOCK, VOCABULARY, bookkeeping, hybrid_layers, prefill, prompts, running
from benchmarks.timing import time_calls
from tidegate.base import Int32Array
from tidegate.cache import KVCacheConfig, KVCacheManager

BYTES_PER_PAGE = 64.0
FLAT = 1.25
FLAT_MATCH = 2.0
"""Flat within noise; a match may pay for memory that no longer fits the processor's caches, not for the search."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    contexts: tuple[int, ...] = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20)
    sequences: int = 16
    steps: int = 256
    cached: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    cached_tokens: int = 256
    matches: int = 501
    memory_sequences: int = 512
    memory_tokens: int = 1024


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return two growth factors and the bytes per page."""
    sizes = sizes or Sizes()
    contexts, cached = sizes.contexts, sizes.cached
    return [
        Case(
            bar="P6",
            what=f"decode step of {sizes.sequences}: dearest of contexts {contexts[0]} … {contexts[-1]} / first",
            unit="x",
            limit=FLAT,
            sample=lambda: [_growth(decode_costs(sizes))],
            name="decode_growth",
        ),
        Case(
            bar="P6",
            what=f"match: dearest of {cached[0]} … {cached[-1]} cached sequences / first",
            unit="x",
            limit=FLAT_MATCH,
            sample=lambda: [_growth(match_costs(sizes))],
            name="match_growth",
        ),
        Case(
            bar="P6",
            what="host memory per cached page besides 4 B per cached token",
            unit="B",
            limit=BYTES_PER_PAGE,
            sample=lambda: [bytes_per_page(sizes)],
            name="bytes_per_page",
        ),
    ]


def _growth(costs: dict[int, float]) -> float:
    values = list(costs.values())
    return max(values) / values[0]


def decode_costs(sizes: Sizes) -> dict[int, float]:
    """Median cost in microseconds of a decode step at each context."""
    rng = np.random.default_rng(3)

    def tokens(_: int) -> Int32Array:
        return rng.integers(0, VOCABULARY, sizes.sequences, dtype=np.int32)

    costs = {}
    for context in sizes.contexts:
        longest = context + sizes.steps + 4 * BLOCK
        config = KVCacheConfig(
            layers=hybrid_layers(),
            max_sequences=sizes.sequences,
            max_seq_len=max(sizes.contexts) + sizes.steps + 4 * BLOCK,  # the same arena at every context
            pool_slots=(sizes.sequences * 2 * (longest // BLOCK + 64),),
            window_checkpoints="declared",
        )
        batch = running(bookkeeping(config), sizes.sequences, context, seed=1, together=1)
        costs[context] = statistics.median(time_calls(tokens, batch.step, sizes.steps))
    return costs


def match_costs(sizes: Sizes) -> dict[int, float]:
    """Median cost in microseconds of matching a cached sequence, at each number of cached sequences.

    The sequences share no prefix: all of them hang below the root. Which one is asked for is drawn anew each time.
    """
    blocks = sizes.cached_tokens // BLOCK
    config = KVCacheConfig(
        layers=hybrid_layers(),
        max_sequences=64,
        max_seq_len=sizes.cached_tokens + BLOCK,
        pool_slots=(2 * (max(sizes.cached) + 64) * (blocks + 2),),
    )
    manager = bookkeeping(config)
    rng = np.random.default_rng(5)
    costs: dict[int, float] = {}
    seeds: list[int] = []
    for count in sizes.cached:
        while len(seeds) < count:
            together = min(64, count - len(seeds))
            manager.close(prefill(manager, _prompts(sizes, len(seeds), together)))
            seeds += range(len(seeds), len(seeds) + together)
        asked = [_prompts(sizes, int(seed), 1)[0] for seed in rng.integers(0, count, sizes.matches + 3)]
        costs[count] = statistics.median(time_calls(asked.__getitem__, manager.probe, sizes.matches))
    return costs


def _prompts(sizes: Sizes, first: int, count: int) -> list[Int32Array]:
    return [prompts([sizes.cached_tokens], seed)[0] for seed in range(first, first + count)]


def bytes_per_page(sizes: Sizes) -> float:
    """Host bytes of a manager whose pool is full of cached pages, less 4 B per cached token, per page."""
    count, num_tokens = sizes.memory_sequences, sizes.memory_tokens
    _full_of_cached(1, num_tokens)  # what is imported or made once is no page's
    tracemalloc.start()
    try:
        manager, pages = _full_of_cached(count, num_tokens)
        used, _ = tracemalloc.get_traced_memory()
        del manager
    finally:
        tracemalloc.stop()
    return (used - 4 * count * num_tokens) / pages


def _full_of_cached(count: int, num_tokens: int) -> tuple[KVCacheManager, int]:
    checkpoint = 128 // BLOCK + 1
    pages = count * (num_tokens // BLOCK + checkpoint)
    config = KVCacheConfig(layers=hybrid_layers(), max_sequences=4, max_seq_len=num_tokens + BLOCK, pool_slots=(pages,))
    manager = bookkeeping(config)
    for seed in range(count):
        manager.close(prefill(manager, prompts([num_tokens], seed)))
    return manager, pages
