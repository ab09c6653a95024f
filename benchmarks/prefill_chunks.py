"""P4: the cache's part of prefilling a long prompt in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import BLOCK, UNKNOWN, bookkeeping, hybrid_layers, prompt
from benchmarks.timing import settled_heap
from tidegate.cache import Candidate, KVCacheConfig, KVCacheManager

LIMIT = 50.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    tokens: int = 32768
    chunk: int = 2048
    prompts: int = 9


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return cases with scratch and without, on a free pool and on one that is full of cached pages."""
    sizes = sizes or Sizes()
    return [_case(sizes, scratch, pool) for pool in ("free", "cached") for scratch in (True, False)]


def _case(sizes: Sizes, scratch: bool, pool: str) -> Case:
    vllm = PeerCall.of("vllm", "prefill", reps=5, block=BLOCK, mode="fresh" if pool == "free" else "evict")
    sglang = PeerCall.of("sglang", "prefill", reps=5, page=BLOCK, chunk=2048)
    return Case(
        bar="P4",
        what=f"one {sizes.chunk}-token chunk of a {sizes.tokens}-token prompt, scratch {'on' if scratch else 'off'}, "
        + ("free pool" if pool == "free" else "pool full of cached pages"),
        unit="µs",
        limit=LIMIT,
        sample=lambda: sample(sizes, scratch, pool),
        name="prefill_32k_chunk",
        keys={
            "kind": "hybrid",
            "block": BLOCK,
            "tokens": sizes.tokens,
            "chunk": sizes.chunk,
            "pool": pool,
            "scratch": int(scratch),
        },
        versus=(
            Versus((vllm,), ("prefill_32k_chunk",), 1.0),
            Versus((sglang,), ("prefill_32k_chunk_alloc", "prefill_32k_chunk_checkpoint"), 1.0),
        ),
    )


def sample(sizes: Sizes, scratch: bool, pool: str) -> list[float]:
    """Prefill several prompts one after another and return the time of every chunk in microseconds.

    A ``free`` pool holds them all; a ``cached`` one holds one and a half, so that from the second prompt on every chunk
    evicts what earlier ones left.
    """
    manager = start(sizes, scratch, 1.5 if pool == "cached" else sizes.prompts + 1)
    elapsed = []
    with settled_heap():
        for seed in range(sizes.prompts):
            elapsed += chunks(manager, manager.candidate(prompt(sizes.tokens, seed)), sizes.chunk)
    return elapsed[len(elapsed) // sizes.prompts :]  # the first prompt warms up


def start(sizes: Sizes, scratch: bool, prompts: float) -> KVCacheManager:
    """Build the manager that is measured, with room for so many prompts in both groups."""
    return bookkeeping(
        KVCacheConfig(
            layers=hybrid_layers(),
            max_sequences=2,
            max_seq_len=sizes.tokens + BLOCK,
            pool_slots=(int(2 * prompts * sizes.tokens / BLOCK),),
            max_chunk_tokens=sizes.chunk,
            swa_scratch_reuse=scratch,
        )
    )


def chunks(manager: KVCacheManager, candidate: Candidate, chunk: int) -> list[float]:
    """Compute a prompt chunk by chunk, then close it; return the time of each chunk."""
    num_tokens = candidate.num_tokens
    rows, elapsed = np.empty(0, np.int64), []
    for end in range(chunk, num_tokens + chunk, chunk):
        end = min(end, num_tokens)
        sampled = np.array([7 if end == num_tokens else UNKNOWN], np.int32)
        begin = perf_counter_ns()
        quote = manager.quote()
        fits = quote.add(rows, np.array([end])) if len(rows) else quote.admit(candidate, end)
        assert fits, quote.shortage
        with manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        manager.advance(reservation.rows, reservation.ends, sampled)
        elapsed.append((perf_counter_ns() - begin) / 1e3)
        rows = reservation.rows
    manager.close(rows)
    return elapsed
