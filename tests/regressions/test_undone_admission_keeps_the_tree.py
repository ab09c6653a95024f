"""In models without full attention, taking an admission back forgot what a running sequence had published."""

from __future__ import annotations

from tidegate.base import Int64Array
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.layouts import stacked, window

TEXT = list(range(50))


def test_what_is_running_stays_published() -> None:
    config = KVCacheConfig(
        layers=stacked(window(1)),
        max_sequences=4,
        max_seq_len=64,
        tokens_per_block=4,
        pool_slots=(32,),
        window_checkpoints="declared",
    )
    manager = KVCacheManager(config, with_memory=False)
    rows = start(manager)
    before = manager.probe(TEXT[:30]).reused
    assert before == 16

    quote = manager.quote()
    assert quote.admit(manager.candidate(TEXT[:30]), 30)
    manager.reserve(quote).rollback()

    manager.audit()
    assert manager.probe(TEXT[:30]).reused == before
    manager.close(rows)
    manager.audit()
    assert manager.probe(TEXT[:30]).reused == before


def test_matches_cannot_be_written_to() -> None:
    config = KVCacheConfig(
        layers=stacked(window(8)), max_sequences=4, max_seq_len=64, tokens_per_block=4, pool_slots=(32,)
    )
    manager = KVCacheManager(config, with_memory=False)
    start(manager)
    held = [pages for group in manager.probe(TEXT[:30]).held for _, pages in group]
    assert held
    assert not any(pages.flags.writeable for pages in held)


def start(manager: KVCacheManager) -> Int64Array:
    """Compute the first 16 tokens of a sequence that goes on."""
    quote = manager.quote()
    assert quote.admit(manager.candidate(TEXT[:16]), 16)
    with manager.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    manager.advance(reservation.rows, reservation.ends, [TEXT[16]])
    return reservation.rows
