"""P1: the cache's part of a decode step, on a free pool and on a pool full of cached pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import (
    BLOCK,
    VOCABULARY,
    WINDOW,
    DecodeBatch,
    bookkeeping,
    fill_with_cached,
    hybrid_layers,
    running,
)
from benchmarks.timing import time_calls
from tidegate.base import Int32Array
from tidegate.cache import KVCacheConfig

LIMITS = {256: 60.0, 1024: 100.0, 4096: 250.0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    sequences: tuple[int, ...] = (256, 1024, 4096)
    context: int = 1024
    steps: int = 128


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return one case for each number of sequences and each state of the pool."""
    sizes = sizes or Sizes()
    return [_case(sizes, count, pool) for count in sizes.sequences for pool in ("free", "cached")]


def _case(sizes: Sizes, count: int, pool: str) -> Case:
    vllm = PeerCall.of("vllm", "decode", steps=sizes.steps, block=BLOCK, nreq=count)
    sglang = PeerCall.of("sglang", "decode", steps=sizes.steps, page=BLOCK, nreq=count)
    state = "free pool" if pool == "free" else "pool full of cached pages"
    return Case(
        bar="P1",
        what=f"decode step of {count} sequences, {state}",
        unit="µs",
        limit=LIMITS.get(count),
        sample=lambda: sample(sizes, count, pool),
        name="decode_step",
        keys={"kind": "hybrid", "block": BLOCK, "nreq": count, "ctx": sizes.context, "pool": pool},
        versus=(
            Versus((vllm,), ("decode_step_alloc",), 30.0),
            Versus((sglang,), ("decode_step_alloc_for_decode",), 5.0),
        ),
    )


def sample(sizes: Sizes, count: int, pool: str) -> list[float]:
    """Time ``steps`` decode steps of one batch in microseconds."""
    batch = start(sizes, count, pool)
    rng = np.random.default_rng(7)

    def tokens(_: int) -> Int32Array:
        return rng.integers(0, VOCABULARY, count, dtype=np.int32)

    return time_calls(tokens, batch.step, sizes.steps)


def start(sizes: Sizes, count: int, pool: str) -> DecodeBatch:
    """Bring a batch to where the measurement starts.

    With a ``cached`` pool no slot is free but those that the running sequences give back themselves: what they take
    beyond that is evicted.
    """
    longest = sizes.context + BLOCK + sizes.steps + 8
    per_sequence = -(-longest // BLOCK) + 2 * (WINDOW // BLOCK + 2)
    slots = count * per_sequence * 2
    config = KVCacheConfig(
        layers=hybrid_layers(), max_sequences=count + 1, max_seq_len=longest + BLOCK, pool_slots=(slots,)
    )
    manager = bookkeeping(config)
    batch = running(manager, count, sizes.context, seed=1)
    if pool == "cached":
        fill_with_cached(manager, slots, sizes.context, seed=10_000)
    return batch
