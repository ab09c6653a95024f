"""Ranks of one process."""

import numpy as np
import pytest

from tidegate.base import Closed, ConfigError, Int64Array
from tidegate.runtime.group import LocalExchange


def test_rows_come_back_as_the_callers_own_copy() -> None:
    exchange = LocalExchange(3)
    rows = np.arange(12).reshape(3, 4)

    gathered = exchange.gather(rows)
    rows[0, 0] = 99

    assert gathered.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert (exchange.size, exchange.local) == (3, (0, 1, 2))


def test_payloads_come_back() -> None:
    exchange = LocalExchange(2)

    assert exchange.broadcast(b"abc", 3) == b"abc"
    assert exchange.collect([b"", b"xy"], [0, 2]) == [b"", b"xy"]


def test_sleep_ends_at_once() -> None:
    exchange = LocalExchange(2)
    exchange.wake()

    assert exchange.sleep(1e9) is False


@pytest.mark.parametrize(
    "rows", [np.zeros((3, 4), np.int64), np.zeros((2, 4), np.int32), np.zeros(2, np.int64), np.zeros((2, 0), np.int64)]
)
def test_rows_of_another_form_are_refused(rows: Int64Array) -> None:
    with pytest.raises(ConfigError, match=r"rows=.* must be int64 of shape \[2, width\]"):
        LocalExchange(2).gather(rows)


@pytest.mark.parametrize(
    ("payloads", "sizes", "field"),
    [([b""], [0, 0], "payloads"), ([b"", b""], [0], "sizes"), ([b"", b"a"], [0, 2], "rank 1 has 1 bytes")],
)
def test_payloads_that_are_not_as_announced_are_refused(payloads: list[bytes], sizes: list[int], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        LocalExchange(2).collect(payloads, sizes)


def test_broadcast_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="payload has 3 bytes and must have the 4"):
        LocalExchange(2).broadcast(b"abc", 4)


def test_closed_exchange_refuses() -> None:
    exchange = LocalExchange(1)
    exchange.close()
    exchange.close()

    with pytest.raises(Closed):
        exchange.gather(np.zeros((1, 1), np.int64))
