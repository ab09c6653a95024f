"""Misuse raises and leaves everything usable; none of it corrupts a neighbour."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import Closed, ConfigError, Int64Array, OutOfPages, RequestTooLong, StateError
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.layouts import full, stacked, state, window


def manager(**settings: object) -> KVCacheManager:
    values: dict[str, object] = {
        "layers": stacked(full(), full()),
        "max_sequences": 3,
        "max_seq_len": 16,
        "pool_slots": (12,),
        "tokens_per_block": 4,
    }
    return KVCacheManager(KVCacheConfig(**{**values, **settings}), with_memory=False)  # type: ignore[arg-type]  # checked


def start(
    cache: KVCacheManager, tokens: list[int], end: int | None = None
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Run a prompt in one step and settle it."""
    quote = cache.quote()
    assert quote.admit(cache.candidate(tokens), len(tokens))
    with cache.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()
    cache.advance(reservation.rows, reservation.ends, [-1])
    return reservation.rows


def grow(cache: KVCacheManager, rows: Int64Array, end: int) -> None:
    quote = cache.quote()
    assert quote.add(rows, np.array([end]))
    with cache.reserve(quote) as reservation:
        reservation.dispatch()
        reservation.keep()


def test_a_row_cannot_grow_past_the_longest_sequence() -> None:
    cache = manager()
    rows = start(cache, [1] * 16)

    with pytest.raises(RequestTooLong, match="max_seq_len"):
        cache.quote().add(rows, np.array([17]))

    cache.audit()


def test_tokens_nobody_named_are_never_published() -> None:
    cache = manager()
    start(cache, [5] * 16)
    cache.close(np.array([0]))
    with cache.create([1, 2, 3, 4]) as sequence:
        assert sequence.resize(12)
        assert sequence.resize(history_length=12)

    assert cache.probe([1, 2, 3, 4, *[5] * 8, 9]).reused <= 4
    cache.audit()


def test_more_tokens_than_a_row_holds_are_refused() -> None:
    cache = manager()
    rows = start(cache, [1] * 8)
    grow(cache, rows, 9)

    with pytest.raises(StateError, match="max_seq_len"):
        cache.advance(rows, np.array([9]), np.ones((1, 64), np.int32))
    with pytest.raises(ConfigError, match="tokens"):
        cache.advance(rows, np.array([9]), [1, 2])


@pytest.mark.parametrize("rows", [[0, 0], [-1], [99]])
def test_rows_are_distinct_and_in_range(rows: list[int]) -> None:
    cache = manager()
    start(cache, [1] * 8)
    given = np.array(rows)

    for call in (
        lambda: cache.quote().add(given, np.full(len(rows), 9)),
        lambda: cache.quote().suspend(given),
        lambda: cache.close(given),
        lambda: cache.suspend(given),
    ):
        with pytest.raises(ConfigError, match="rows"):
            call()
    cache.audit()


def test_victims_come_before_candidates() -> None:
    cache = manager()
    rows = start(cache, [1] * 8)
    quote = cache.quote()
    assert quote.admit(cache.candidate([2] * 8), 8)

    with pytest.raises(StateError, match="before"):
        quote.suspend(rows)


def test_a_step_that_may_be_rolled_back_is_not_settled() -> None:
    cache = manager()
    rows = start(cache, [1] * 8)
    quote = cache.quote()
    assert quote.add(rows, np.array([9]))
    reservation = cache.reserve(quote)
    reservation.dispatch()

    with pytest.raises(StateError, match="rolled back"):
        cache.advance(rows, np.array([9]), [3])

    reservation.rollback()
    cache.audit()


def test_retargeting_a_kept_step_gives_its_snapshot_back() -> None:
    cache = manager(layers=stacked(full(), state()), separate_pools=True, pool_slots=(12, 6))
    with cache.create([1] * 8) as sequence:
        for _ in range(3):
            assert sequence.resize(4)
            assert sequence.resize(0)
            cache.audit()
        assert cache.statistics().pools[1].free == 6


def test_a_settled_planned_step_is_ready_again() -> None:
    cache = manager()
    rows = start(cache, [1] * 8)
    quote = cache.quote()
    assert quote.add(rows, np.array([9]))
    with cache.reserve(quote) as reservation:
        reservation.keep()
    cache.advance(rows, np.array([9]), [3])

    grow(cache, rows, 10)
    cache.audit()


def test_a_failed_batch_leaves_no_valid_quote_behind() -> None:
    cache = manager(layers=stacked(full(), window(4)), pool_slots=(24,))
    first, second = start(cache, [1] * 8), start(cache, [2] * 12)
    quote = cache.quote()

    with pytest.raises(StateError):
        cache.rewind(np.concatenate([first, second]), np.array([8, 1]))

    with pytest.raises(StateError, match="stale"):
        cache.reserve(quote)
    cache.audit()


def test_forks_are_made_all_or_none() -> None:
    cache = manager(layers=stacked(full(), state()), separate_pools=True, pool_slots=(12, 3), max_sequences=5)
    rows = start(cache, [1] * 6)
    before = cache.statistics()

    with pytest.raises(OutOfPages, match="5 rows, 4 are free"):
        cache.fork(int(rows[0]), count=5)
    assert cache.statistics() == before
    cache.audit()


def test_a_handle_whose_row_was_suspended_can_still_be_closed() -> None:
    cache = manager()
    sequence = cache.create([1] * 8)
    assert sequence.resize(8)
    assert sequence.resize(history_length=8)
    cache.suspend(np.array([sequence.row]))

    sequence.close()

    with pytest.raises(Closed):
        _ = sequence.row
    cache.audit()
