"""Ragged page tables for kernels that want CSR."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import BufferSpec, ConfigError, LayerSpec, StateError
from tidegate.cache import KVCacheConfig, KVCacheManager

BUFFERS = (BufferSpec("key", 64), BufferSpec("value", 64))


def manager_of(*layers: LayerSpec) -> KVCacheManager:
    return KVCacheManager(
        KVCacheConfig(layers=layers, max_sequences=4, max_seq_len=256, tokens_per_block=16, pool_slots=(64,)),
        with_memory=False,
    )


def grown(manager: KVCacheManager, *lengths: int) -> np.ndarray:
    quote = manager.quote()
    for seed, length in enumerate(lengths):
        tokens = np.random.default_rng(seed).integers(0, 1000, length, dtype=np.int32)
        assert quote.admit(manager.candidate(tokens), length)
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, np.ones(len(lengths), np.int32))
    return reservation.rows


def test_lists_the_slots_of_each_row() -> None:
    manager = manager_of(LayerSpec(0, "full_attention", BUFFERS))
    rows = grown(manager, 40, 16)
    tables = manager.csr(rows[::-1].copy(), 0)
    arena = manager_rows(manager, rows)
    assert tables.indptr.tolist() == [0, 1, 4]
    assert tables.indices.tolist() == [*arena[1, :1].tolist(), *arena[0, :3].tolist()]
    assert tables.last_page_len.tolist() == [16, 8]
    assert tables.first_block.tolist() == [0, 0]
    assert all(array.dtype == np.int32 for array in (tables.indptr, tables.indices, tables.last_page_len))


def test_a_window_starts_where_its_first_page_is() -> None:
    manager = manager_of(LayerSpec(0, "sliding_attention", BUFFERS, window=32))
    tables = manager.csr(grown(manager, 100), 0)
    assert tables.first_block.tolist() == [4]  # (100 + 1 - 32) // 16 blocks are stale
    assert tables.indptr.tolist() == [0, 3]


def test_sinks_cannot_be_said() -> None:
    manager = manager_of(LayerSpec(0, "sliding_attention", BUFFERS, window=32, sink_tokens=16))
    with pytest.raises(StateError, match="several runs"):
        manager.csr(grown(manager, 100), 0)


def test_scratch_cannot_be_said() -> None:
    manager = manager_of(*(LayerSpec(i, "sliding_attention", BUFFERS, window=16) for i in range(4)))
    quote = manager.quote()
    assert quote.admit(manager.candidate(np.arange(128, dtype=np.int32)), 128)
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        with pytest.raises(StateError, match="live scratch"):
            manager.csr(reservation.rows, 0)


@pytest.mark.parametrize("group", [-1, 1, True])
def test_refuses_groups_that_are_not_there(group: int) -> None:
    manager = manager_of(LayerSpec(0, "full_attention", BUFFERS))
    with pytest.raises(ConfigError, match="group_id"):
        manager.csr(grown(manager, 16), group)


def manager_rows(manager: KVCacheManager, rows: np.ndarray) -> np.ndarray:
    """The slots a step of these rows would be given."""
    quote = manager.quote()
    assert quote.add(rows, manager.capacity[rows] + 1)
    with manager.reserve(quote) as reservation:
        slots: np.ndarray = reservation.dispatch().groups[0].slots[rows].copy()
    return slots
