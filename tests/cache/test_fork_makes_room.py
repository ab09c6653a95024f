"""A fork copies state pages: what nobody holds makes room for them."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import BufferSpec, LayerSpec, OutOfPages
from tidegate.cache import KVCacheConfig, KVCacheManager

LAYERS = (
    LayerSpec(0, "full_attention", (BufferSpec("key", 64), BufferSpec("value", 64))),
    LayerSpec(1, "linear_attention", (BufferSpec("state", 4096),)),
)
STATE_SLOTS = 6


def manager() -> KVCacheManager:
    config = KVCacheConfig(
        layers=LAYERS, max_sequences=8, max_seq_len=64, tokens_per_block=4, pool_slots=(64, STATE_SLOTS)
    )
    return KVCacheManager(config)


def start(cache: KVCacheManager, seed: int) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(0, 1000, 12, dtype=np.int32)
    quote = cache.quote()
    assert quote.admit(cache.candidate(tokens), 12), quote.shortage
    with cache.reserve(quote) as reservation:
        pages = reservation.dispatch()
        cache.copy_pages(pages.copies)
        cache.copy_pages(pages.snapshots)
        reservation.keep()
    cache.advance(reservation.rows, reservation.ends, np.array([1], np.int32))
    return reservation.rows


def full_of_snapshots() -> tuple[KVCacheManager, np.ndarray]:
    """Every state slot is taken: one by a running sequence, the others by what ended ones left."""
    cache = manager()
    for seed in range(8):
        cache.close(start(cache, seed))
    row = start(cache, 100)
    state = cache.statistics().pools[1]
    assert state.free == 0
    assert state.evictable > 2
    return cache, row


def test_cached_states_make_room() -> None:
    cache, row = full_of_snapshots()
    twins = cache.fork(int(row[0]), 2)
    cache.audit()
    for twin in (*row.tolist(), *twins.tolist()):
        cache.close(np.array([twin]))
    cache.audit()


def test_refused_without_touching_what_is_cached() -> None:
    cache, row = full_of_snapshots()
    before = cache.statistics()
    with pytest.raises(OutOfPages, match="state slots"):
        cache.fork(int(row[0]), STATE_SLOTS)
    assert cache.statistics() == before
    cache.audit()
