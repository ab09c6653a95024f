"""P3: matching a prompt against the prefix tree, page ids gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import BLOCK, bookkeeping, hybrid_layers, prefill, prompt
from benchmarks.timing import time_calls
from tidegate.base import Int32Array
from tidegate.cache import KVCacheConfig, KVCacheManager

LIMITS = {8192: 7.0, 131072: 80.0}
LEAST_CHUNK = 2048
"""The limits are for nodes as chunked prefill makes them; smaller ones are held against the peers only."""
PARTS = ("whole", "half", "miss")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    tokens: tuple[int, ...] = (8192, 131072)
    nodes: tuple[int, ...] = (1, 4, 64)
    repeats: int = 101


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return one case for each prompt length, number of nodes and part that is cached."""
    sizes = sizes or Sizes()
    return [
        _case(sizes, num_tokens, nodes, part) for num_tokens in sizes.tokens for nodes in sizes.nodes for part in PARTS
    ]


def _case(sizes: Sizes, num_tokens: int, nodes: int, part: str) -> Case:
    chunk = num_tokens // nodes
    vllm = PeerCall.of("vllm", "lookup", reps=9, block=BLOCK, tokens=num_tokens)
    versus: tuple[Versus, ...] = ()
    if part != "half":
        hit = part == "whole"
        versus = (
            Versus((vllm,), ("hash_only", "lookup_hit" if hit else "lookup_cold"), 100.0),
            *(
                Versus(
                    (PeerCall.of("sglang", "lookup", reps=9, kind=kind, page=BLOCK, tokens=num_tokens, chunk=chunk),),
                    ("match_hit_plus_indices" if hit else "match_cold",),
                    1.5,
                    label=label,
                )
                for kind, label in (("full", "full"), ("swa", "windowed"))
            ),
        )
    cached = {"whole": "fully cached", "half": "cached by half", "miss": "not cached"}[part]
    return Case(
        bar="P3",
        what=f"match {num_tokens} tokens against {nodes} nodes, {cached}",
        unit="µs",
        limit=LIMITS.get(num_tokens) if chunk >= LEAST_CHUNK else None,
        sample=lambda: sample(sizes, num_tokens, nodes, part),
        name=f"match_{part}",
        keys={"kind": "hybrid", "block": BLOCK, "tokens": num_tokens, "nodes": nodes},
        versus=versus,
    )


def sample(sizes: Sizes, num_tokens: int, nodes: int, part: str) -> list[float]:
    """Time ``repeats`` matches in microseconds, each of a fresh array that equals the cached prompt as far as asked."""
    manager = cached_prompt(num_tokens, nodes)
    return time_calls(question(num_tokens, part), manager.probe, sizes.repeats)


def question(num_tokens: int, part: str) -> Callable[[int], Int32Array]:
    """Return what makes the prompts that are looked up."""
    cached = prompt(num_tokens, seed=1)
    other = prompt(num_tokens, seed=2)
    shared = {"whole": num_tokens, "half": num_tokens // 2, "miss": 0}[part]
    asked = np.concatenate([cached[:shared], other[shared:]])
    return lambda _: asked.copy()


def cached_prompt(num_tokens: int, nodes: int) -> KVCacheManager:
    """Cache one prompt as a chain of ``nodes`` nodes: requests that end where a node shall end, shortest first.

    One more token than the prompt is cached, as generation does, so that the whole prompt can match.
    """
    slots = 4 * (num_tokens // BLOCK) + 16 * nodes + 64
    config = KVCacheConfig(
        layers=hybrid_layers(), max_sequences=2, max_seq_len=num_tokens + 2 * BLOCK, pool_slots=(slots,)
    )
    manager = bookkeeping(config)
    tokens = prompt(num_tokens, seed=1)
    for end in np.linspace(0, num_tokens, nodes + 1).astype(int)[1:]:
        manager.close(prefill(manager, [tokens[:end]], chunk=num_tokens))
    return manager
