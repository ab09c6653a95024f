"""What ranks tell each other, whoever carries it; and the carrier for ranks that share a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.base import Closed, ConfigError, Int64Array, check_integer, shown

MAX_RANKS = 4096
"""More is a mistake in a setting, not a group."""


class Exchange(Protocol):
    """One per process. Ranks call the same methods in the same order; any call may raise ``RankError``."""

    @property
    def size(self) -> int:
        """Number of ranks in all."""
        ...

    @property
    def local(self) -> tuple[int, ...]:
        """Ranks that live in this process, ascending."""
        ...

    def gather(self, rows: Int64Array) -> Int64Array:
        """Exchange one row per rank: ``[len(local), width]`` in, ``[size, width]`` out, by exactly one collective.

        The width may differ from call to call, but is the same on all ranks. The result is the caller's to keep.
        """
        ...

    def broadcast(self, payload: bytes, num_bytes: int) -> bytes:
        """Return rank 0's payload everywhere. ``num_bytes`` is its length; all ranks know it from the gathered rows.

        Elsewhere than on rank 0 ``payload`` is ignored. Nothing is sent for 0 bytes.
        """
        ...

    def collect(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        """Bring every rank's payload to rank 0: all of them by rank where it lives, ``[]`` elsewhere.

        ``payloads`` has one entry per local rank, ``sizes`` one per rank of all. A rank of size 0 sends nothing.
        """
        ...

    def sleep(self, timeout_s: float) -> bool:
        """Wait without computing until rank 0 wakes all: True when it did, False at the time-out.

        Meant for when the gathered rows say that everybody is idle, hence the same on all ranks.
        """
        ...

    def wake(self) -> None:
        """End the sleep of all ranks, or else the next one. Rank 0 only, but from any thread of it.

        A rank 0 that waits elsewhere while the others sleep calls it after that, before its next gather.
        """
        ...

    def close(self) -> None:
        """Leave the group, which the others do not take for a death. May be called again."""
        ...


class LocalExchange:
    """All ranks in this process. A gather is a copy; nobody else can wake anybody, so a sleep ends at once."""

    def __init__(self, num_ranks: int) -> None:
        check_integer("num_ranks", num_ranks, 1, MAX_RANKS)
        self._local = tuple(range(num_ranks))
        self._is_closed = False

    @property
    def size(self) -> int:
        """Number of ranks in all."""
        return len(self._local)

    @property
    def local(self) -> tuple[int, ...]:
        """Every rank."""
        return self._local

    def gather(self, rows: Int64Array) -> Int64Array:
        """Return a copy of the rows."""
        self._check_open()
        check_rows(rows, len(self._local))
        return rows.copy()

    def broadcast(self, payload: bytes, num_bytes: int) -> bytes:
        """Return the payload."""
        self._check_open()
        check_length("payload", payload, num_bytes)
        return payload

    def collect(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        """Return the payloads."""
        self._check_open()
        check_payloads(payloads, sizes, self._local, self.size)
        return list(payloads)

    def sleep(self, timeout_s: float) -> bool:
        """Return False."""
        self._check_open()
        return False

    def wake(self) -> None:
        """Do nothing: nobody sleeps."""
        self._check_open()

    def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the exchange is closed")


def check_rows(rows: Int64Array, num_local: int) -> None:
    """Raise ``ConfigError`` unless there is one int64 row per local rank."""
    if rows.ndim != 2 or rows.shape[0] != num_local or rows.shape[1] < 1 or rows.dtype != "int64":
        legal = f"int64 of shape [{num_local}, width]"
        raise ConfigError(f"rows={rows.dtype}{list(rows.shape)} must be {legal}", field="rows", value=rows.shape)


def check_length(field: str, payload: bytes, num_bytes: int) -> None:
    """Raise ``ConfigError`` unless a payload has the length that its row announced."""
    if len(payload) != num_bytes:
        message = f"{field} has {len(payload)} bytes and must have the {num_bytes} that were announced"
        raise ConfigError(message, field=field, value=len(payload), announced=num_bytes)


def check_payloads(payloads: Sequence[bytes], sizes: Sequence[int], local: Sequence[int], size: int) -> None:
    """Raise ``ConfigError`` unless there is one size per rank, and per local rank one payload of that size."""
    if len(sizes) != size:
        raise ConfigError(f"sizes={shown(list(sizes))} must have one entry for each of {size} ranks", field="sizes")
    if len(payloads) != len(local):
        raise ConfigError(f"{len(payloads)} payloads for {len(local)} local ranks: one for each", field="payloads")
    for rank, payload in zip(local, payloads, strict=True):
        check_length(f"the payload of rank {rank}", payload, sizes[rank])
