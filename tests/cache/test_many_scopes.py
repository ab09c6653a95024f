"""A salt per request is legal: what is kept of a scope must go with its last page and its last sequence."""

from __future__ import annotations

import numpy as np

from tidegate.base import BufferSpec, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager, ReuseScope
from tidegate.cache.statistics import MOST_SCOPES

BUFFERS = (BufferSpec("key", 64), BufferSpec("value", 64))


def small_manager() -> KVCacheManager:
    layers = (LayerSpec(0, "full_attention", BUFFERS), LayerSpec(1, "sliding_attention", BUFFERS, window=8))
    config = KVCacheConfig(layers=layers, max_sequences=2, max_seq_len=64, tokens_per_block=4, pool_slots=(32,))
    return KVCacheManager(config, with_memory=False)


def serve(manager: KVCacheManager, scope: ReuseScope, length: int = 12) -> None:
    tokens = np.arange(length, dtype=np.int32)
    quote = manager.quote()
    assert quote.admit(manager.candidate(tokens, scope), length), quote.shortage
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, np.array([1], np.int32))
    manager.close(reservation.rows)


def forget_empty_trees(manager: KVCacheManager) -> None:
    """Make so many scopes that the empty ones are swept up."""
    for number in range(300):
        serve(manager, ReuseScope(salt=f"other {number}"), length=1)
        manager.reuse.invalidate(ReuseScope(salt=f"other {number}"))


def test_trees_of_evicted_scopes_go() -> None:
    manager = small_manager()
    for number in range(1000):
        serve(manager, ReuseScope(salt=str(number)))
    manager.audit()
    assert len(manager._core.tree.trees()) <= 2 * 64


def test_a_tree_made_again_is_not_mistaken_for_the_old_one() -> None:
    manager, scope = small_manager(), ReuseScope(salt="again")
    serve(manager, scope)
    candidate = manager.candidate(np.arange(12, dtype=np.int32), scope)
    assert manager.lookup(candidate) == 11
    manager.reuse.clear()
    forget_empty_trees(manager)
    serve(manager, scope, length=8)
    assert manager.lookup(candidate) == 8
    manager.reuse.clear()
    forget_empty_trees(manager)
    assert manager.lookup(candidate) == 0


def test_a_running_sequence_keeps_its_tree() -> None:
    manager, scope = small_manager(), ReuseScope(salt="running")
    quote = manager.quote()
    assert quote.admit(manager.candidate(np.arange(12, dtype=np.int32), scope), 12)
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    forget_empty_trees(manager)
    manager.advance(reservation.rows, reservation.ends, np.array([1], np.int32))
    (twin,) = manager.fork(int(reservation.rows[0])).tolist()
    manager.close(reservation.rows)
    manager.close(np.array([twin]))
    manager.audit()
    assert manager.lookup(manager.candidate(np.arange(12, dtype=np.int32), scope)) == 11


def test_the_scopes_used_last_are_counted_one_by_one() -> None:
    manager = small_manager()
    for number in range(MOST_SCOPES + 3):
        serve(manager, ReuseScope(salt=str(number)), length=4)
    statistics = manager.statistics()
    assert len(statistics.scopes) == MOST_SCOPES
    assert (None, 0, "2") not in statistics.scopes
    assert (None, 0, "3") in statistics.scopes
    assert statistics.other_scopes.query_tokens == 12
    assert statistics.query_tokens == 4 * (MOST_SCOPES + 3)
