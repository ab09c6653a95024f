"""P4b: many requests end in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import BLOCK, DecodeBatch, bookkeeping, hybrid_layers, running
from benchmarks.timing import time_calls
from tidegate.cache import KVCacheConfig, KVCacheManager

LIMIT = 500.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    sequences: int = 256
    context: int = 1024
    repeats: int = 9


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return the one case of this bar."""
    sizes = sizes or Sizes()
    count, context = sizes.sequences, sizes.context
    vllm = PeerCall.of("vllm", "free", reps=7, block=BLOCK, nreq=count, ctx=context)
    sglang = PeerCall.of("sglang", "free", reps=3, page=BLOCK, nreq=count, ctx=context)
    return [
        Case(
            bar="P4b",
            what=f"{count} requests of {context} tokens end in one step",
            unit="µs",
            limit=LIMIT,
            sample=lambda: sample(sizes),
            name="finish",
            keys={"kind": "hybrid", "block": BLOCK, "nreq": count, "ctx": context},
            versus=(Versus((vllm,), ("free_256",), 1.0), Versus((sglang,), ("free_256",), 1.0)),
        )
    ]


def sample(sizes: Sizes) -> list[float]:
    """Time closing a whole batch in microseconds; each batch starts on what earlier ones left cached."""
    manager = start(sizes)
    return time_calls(
        lambda i: batch(manager, sizes, seed=1 + i * sizes.sequences), lambda b: manager.close(b.rows), sizes.repeats
    )


def start(sizes: Sizes) -> KVCacheManager:
    """Build the manager that is measured: room for two batches."""
    slots = 2 * sizes.sequences * (sizes.context // BLOCK + 16)
    return bookkeeping(
        KVCacheConfig(
            layers=hybrid_layers(),
            max_sequences=sizes.sequences,
            max_seq_len=sizes.context + 3 * BLOCK,
            pool_slots=(slots,),
        )
    )


def batch(manager: KVCacheManager, sizes: Sizes, seed: int) -> DecodeBatch:
    """Bring a batch through prefill and one decode step."""
    started = running(manager, sizes.sequences, sizes.context, seed)
    started.step(np.full(sizes.sequences, 7, np.int32))
    return started
