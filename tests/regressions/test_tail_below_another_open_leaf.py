"""A closing fork found its text in the open leaf of its twin, and hung its last partial block on that."""

from __future__ import annotations

import numpy as np

from tidegate.base import BufferSpec, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager

BUFFERS = (BufferSpec("key", 64), BufferSpec("value", 64))


def test_the_twins_leaf_is_closed_first() -> None:
    config = KVCacheConfig(
        layers=(LayerSpec(0, "sliding_attention", BUFFERS, window=8),),
        max_sequences=4,
        max_seq_len=32,
        tokens_per_block=4,
        pool_slots=(32,),
        window_checkpoints="declared",
    )
    manager = KVCacheManager(config)
    row = grow(manager, np.arange(6, dtype=np.int32))
    twin, third = manager.fork(row, 2).tolist()
    manager.suspend(np.array([third]))  # the node that all three hang on has no checkpoint: it goes
    for token in range(2):
        step(manager, row, token)
    manager.close(np.array([twin]))
    manager.audit()
    # The row holds 0 … 5, 50, 0 in whole blocks; the twin's 4, 5 belong behind 3, not behind those.
    assert manager.probe([0, 1, 2, 3, 4, 5, 50, 0, 4, 5, 9]).raw == 8
    manager.close(np.array([row]))
    manager.audit()


def grow(manager: KVCacheManager, tokens: np.ndarray) -> int:
    quote = manager.quote()
    assert quote.admit(manager.candidate(tokens), len(tokens))
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, np.array([50], np.int32))
    return int(reservation.rows[0])


def step(manager: KVCacheManager, row: int, token: int) -> None:
    quote = manager.quote()
    assert quote.add(np.array([row]), manager.capacity[[row]] + 1)
    with manager.reserve(quote) as reservation:
        manager.copy_pages(reservation.dispatch().copies)
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, np.array([token], np.int32))
