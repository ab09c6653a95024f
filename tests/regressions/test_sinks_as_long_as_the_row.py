"""Closing a sequence whose sinks cover its whole row looked one block beyond it, in the middle of closing."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.layouts import full, stacked, window


@pytest.mark.parametrize(("block", "longest"), [(32, 32), (4, 16)])
def test_closes(block: int, longest: int) -> None:
    config = KVCacheConfig(
        layers=stacked(full(), window(8, sink_tokens=longest - 3)),
        max_sequences=4,
        max_seq_len=longest,
        tokens_per_block=block,
        pool_slots=(64,),
    )
    manager = KVCacheManager(config, with_memory=False)
    quote = manager.quote()
    assert quote.admit(manager.candidate(list(range(longest - 1))), longest - 1)
    for _ in range(2):
        with manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        rows = reservation.rows
        manager.advance(rows, reservation.ends, np.array([1], np.int32))
        quote = manager.quote()
        if manager.capacity[rows[0]] < longest:
            assert quote.add(rows, manager.capacity[rows] + 1)
    manager.close(rows)
    manager.audit()
