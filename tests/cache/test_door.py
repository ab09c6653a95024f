"""Misuse is refused at the door: the error says what is legal, and nothing has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegate.base import Closed, ConfigError, Int64Array, StateError, TidegateError, WrongThread
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing.layouts import full, stacked, window

MAX_SEQ_LEN = 64


def manager_of() -> KVCacheManager:
    config = KVCacheConfig(
        layers=stacked(full(), window(8)),
        max_sequences=4,
        max_seq_len=MAX_SEQ_LEN,
        pool_slots=(32,),
        tokens_per_block=4,
    )
    return KVCacheManager(config, with_memory=False)


@pytest.fixture
def manager() -> KVCacheManager:
    return manager_of()


def start(manager: KVCacheManager, count: int = 3) -> Int64Array:
    """Start sequences of six settled tokens."""
    quote = manager.quote()
    for i in range(count):
        assert quote.admit(manager.candidate(np.arange(1, 9) + 10 * i), 6)
    reservation = manager.reserve(quote)
    reservation.dispatch()
    reservation.keep()
    manager.advance(reservation.rows, np.full(count, 6), np.full(count, -1))
    return reservation.rows


def open_step(manager: KVCacheManager, rows: Int64Array) -> None:
    quote = manager.quote()
    assert quote.add(rows, manager.capacity[rows] + 1)
    reservation = manager.reserve(quote)
    reservation.dispatch()
    reservation.keep()


def state_of(manager: KVCacheManager) -> list[Any]:
    return [a.tolist() for a in (manager.history, manager.capacity, manager.num_open, np.array(manager.quote().supply))]


BAD_ROWS: dict[str, Callable[[Int64Array], Any]] = {
    "a row twice": lambda rows: rows[[0, 1, 0]],
    "far below the first": lambda rows: np.array([-5]),
    "as far below as there are rows": lambda rows: np.array([-4]),
    "counted from the end": lambda rows: rows - 4,
    "beyond the last": lambda rows: rows + 4,
    "far beyond": lambda rows: rows + (1 << 40),
    "fractions": lambda rows: rows + 0.5,
    "booleans": lambda rows: rows > 0,
    "two dimensions": lambda rows: rows[None],
    "one number": lambda rows: rows[0],
    "none": lambda rows: None,
    "text": lambda rows: ["a", "b", "c"],
    "ragged": lambda rows: [[0], [1, 2], [3]],
}


@pytest.mark.parametrize("rows_of", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_rows(rows_of: Callable[[Int64Array], Any], manager: KVCacheManager) -> None:
    rows = start(manager)
    before = state_of(manager)
    bad, ends, tokens = rows_of(rows), np.full(3, 7), np.full(3, 1)
    calls: list[Callable[[], object]] = [
        lambda: manager.quote().add(bad, ends),
        lambda: manager.quote().suspend(bad),
        lambda: manager.advance(bad, ends, tokens),
        lambda: manager.rewind(bad, ends - 2),
        lambda: manager.suspend(bad),
        lambda: manager.close(bad),
        lambda: manager.reuse.stop_publishing(bad),
    ]

    for call in calls:
        with pytest.raises(ConfigError, match="rows"):
            call()

    assert state_of(manager) == before
    manager.audit()
    open_step(manager, rows)


def test_lists_of_integers_are_rows_too(manager: KVCacheManager) -> None:
    rows = start(manager)
    quote = manager.quote()

    assert quote.add(rows.tolist(), [7, 7, 7])  # type: ignore[arg-type]  # for callers without types


@pytest.mark.parametrize("ends", [[7, 7], [7], 7, [7.5] * 3, [None] * 3, np.full(3, 2**64 - 1, np.uint64)])
def test_capacities_and_histories(ends: Any, manager: KVCacheManager) -> None:
    rows = start(manager)
    with pytest.raises(ConfigError, match="capacities"):
        manager.quote().add(rows, ends)
    open_step(manager, rows)
    before = state_of(manager)

    with pytest.raises(ConfigError, match="histories"):
        manager.advance(rows, ends, np.full(3, 1))

    assert state_of(manager) == before
    manager.audit()


def test_a_free_row_has_nothing_to_settle(manager: KVCacheManager) -> None:
    start(manager)
    free = np.flatnonzero(manager.capacity == 0)

    with pytest.raises(Closed, match=f"row {free[0]}"):
        manager.advance(free, np.array([-1]), np.array([1]))

    manager.audit()


BAD_TOKENS: dict[str, Any] = {
    "too few": [1, 1],
    "one number": 1,
    "rows of another number": [[1, 1, 1]],
    "three dimensions": np.ones((3, 1, 1), np.int32),
    "fractions": [1.5] * 3,
    "text": ["a"] * 3,
    "none": None,
    "above int32": [2**31] * 3,
    "wrapping to a token": [2**40 + 5] * 3,
    "more than a row holds": np.ones((3, MAX_SEQ_LEN + 1), np.int32),
}


@pytest.mark.parametrize("tokens", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
def test_tokens(tokens: Any, manager: KVCacheManager) -> None:
    rows = start(manager)
    open_step(manager, rows)
    before = state_of(manager)

    with pytest.raises((ConfigError, StateError), match="tokens"):
        manager.advance(rows, np.full(3, 7), tokens)

    assert state_of(manager) == before
    manager.audit()
    manager.advance(rows, np.full(3, 7), np.full(3, 1))


def test_tokens_never_run_into_the_next_row(manager: KVCacheManager) -> None:
    with manager.create([1, 2, 3]) as one, manager.create([4, 5, 6]):
        with pytest.raises(StateError, match="max_seq_len=64"):
            for _ in range(MAX_SEQ_LEN + 10):
                one.append([7])
        assert manager._core.sequences.tokens[one.row - 1, 0] in (0, 4)


@pytest.mark.parametrize("capacity", [3.5, float("nan"), "x", None, True])
def test_capacity_of_an_admission(capacity: Any, manager: KVCacheManager) -> None:
    with pytest.raises(ConfigError, match="capacity="):
        manager.quote().admit(manager.candidate([1, 2, 3]), capacity)
    with pytest.raises(ConfigError, match="candidate="):
        manager.quote().admit("candidate", 3)  # type: ignore[arg-type]  # on purpose


def test_a_quote_prices_its_own_cache_only(manager: KVCacheManager) -> None:
    for quote in (manager_of().quote(), None):
        with pytest.raises(ConfigError, match="of this cache"):
            manager.reserve(quote)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("row", [0.5, "0", None, True, [0], -1, 9])
def test_fork(row: Any, manager: KVCacheManager) -> None:
    start(manager)
    with pytest.raises(ConfigError, match="rows"):
        manager.fork(row)


@pytest.mark.parametrize("count", [0, -1, 1.5, None, True])
def test_number_of_forks(count: Any, manager: KVCacheManager) -> None:
    row = int(start(manager)[0])
    with pytest.raises(TidegateError, match="count="):
        manager.fork(row, count)


def test_only_the_thread_that_made_the_cache_changes_it(manager: KVCacheManager) -> None:
    rows = start(manager)
    errors: list[Exception] = []

    def try_all() -> None:
        calls: list[Callable[[], object]] = [
            lambda: manager.reserve(manager.quote()),
            lambda: manager.advance(rows, np.full(3, 6), np.full(3, 1)),
            lambda: manager.rewind(rows, np.full(3, 5)),
            lambda: manager.suspend(rows),
            lambda: manager.close(rows),
            lambda: manager.fork(int(rows[0])),
            lambda: manager.create([1, 2]),
        ]
        for call in calls:
            try:
                call()
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=try_all)
    thread.start()
    thread.join()

    assert [type(error) for error in errors] == [WrongThread] * 7
    manager.audit()


def test_what_was_given_may_be_changed_afterwards(manager: KVCacheManager) -> None:
    rows = start(manager)
    mine, capacities = rows.copy(), manager.capacity[rows] + 1
    quote = manager.quote()
    assert quote.add(mine, capacities)
    mine[:], capacities[:] = 0, 60
    reservation = manager.reserve(quote)
    reservation.dispatch()
    mine[:], capacities[:] = 1, 50
    reservation.rollback()
    manager.audit()
    assert manager.capacity[rows].tolist() == [6, 6, 6]


def test_rows_that_were_checked_once_are_told_from_others(manager: KVCacheManager) -> None:
    rows = start(manager)
    again = rows.copy()
    for _ in range(2):
        quote = manager.quote()
        assert quote.add(again, manager.capacity[rows] + 1)
    again[1] = again[0]
    with pytest.raises(ConfigError, match="distinct"):
        manager.quote().add(again, manager.capacity[rows] + 1)
