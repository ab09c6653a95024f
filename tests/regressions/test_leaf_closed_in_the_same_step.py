"""Two sequences of one text crossed a block in one step: publishing one closed the other's leaf, which then claimed a
block that the tree did not have."""

from __future__ import annotations

import numpy as np

from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.layouts import full, stacked

TEXT = list(range(100, 140))


def test_both_have_published_what_they_claim() -> None:
    config = KVCacheConfig(
        layers=stacked(full()), max_sequences=4, max_seq_len=64, tokens_per_block=2, pool_slots=(64,)
    )
    manager = KVCacheManager(config, with_memory=False)
    first = admit(manager)
    step(manager, [first], [6])
    second = admit(manager)
    step(manager, [first], [8])
    step(manager, [second], [6])
    step(manager, [first, second], [10, 8])

    assert manager.probe([*TEXT[:10], 1]).reused == 10
    step(manager, [first], [11])
    step(manager, [second], [10])
    manager.close(np.array([first]))
    manager.audit()
    assert manager.probe([*TEXT[:11], 1]).reused == 11
    step(manager, [second], [12])
    manager.close(np.array([second]))
    manager.audit()
    assert manager.probe([*TEXT[:12], 1]).reused == 12


def admit(manager: KVCacheManager) -> int:
    quote = manager.quote()
    assert quote.admit(manager.candidate(TEXT[:4]), 4)
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, [TEXT[4]])
    return int(reservation.rows[0])


def step(manager: KVCacheManager, rows: list[int], ends: list[int]) -> None:
    """Compute more of the text; as in decoding, one token more than is computed is known."""
    quote = manager.quote()
    begins = manager.history[rows]
    assert quote.add(np.array(rows), np.array(ends))
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    tokens = np.full((len(rows), int((ends - begins).max())), -1, np.int32)
    for i, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True)):
        tokens[i, : end - begin] = TEXT[begin + 1 : end + 1]
    manager.advance(np.array(rows), np.array(ends), tokens)
    manager.audit()
