"""The waiting queue: ordered by a key, cheap at both ends, bounded."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from tidegate.base import ConfigError, QueueFull

Item = TypeVar("Item")
QueueKey = tuple[int, int]
"""(rank, order of arrival): low first; the second part makes keys distinct."""


class _Entry(NamedTuple, Generic[Item]):
    request_id: str
    item: Item
    num_tokens: int


class WaitingQueue(Generic[Item]):
    """Items by key. First come first served when all keys start with 0, else by rank, then first come.

    ``num_tokens`` is the sum of what the items were pushed with, kept up to date at each change.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.num_tokens = 0
        self._limit = limit
        self._keys: list[QueueKey] = []
        self._arrivals: list[int] = []
        self._entries: dict[int, _Entry[Item]] = {}
        self._by_id: dict[str, QueueKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __iter__(self) -> Iterator[Item]:
        """Yield items in order; the queue must not change meanwhile."""
        for _, order in self._keys:
            yield self._entries[order].item

    def by_arrival(self) -> Iterator[Item]:
        """Yield items in order of arrival, whatever their rank; the queue must not change meanwhile."""
        for order in self._arrivals:
            yield self._entries[order].item

    def check_room(self, num_others: int = 0) -> None:
        """Raise ``QueueFull`` when one more submission, besides ``num_others``, would exceed the limit."""
        waiting = len(self._keys) + num_others
        if self._limit is not None and waiting >= self._limit:
            raise QueueFull(
                f"{waiting} requests wait and max_waiting={self._limit}", waiting=waiting, limit=self._limit
            )

    def push(self, request_id: str, key: QueueKey, item: Item, num_tokens: int = 0) -> None:
        """Insert by key. A suspended request comes back this way, so the limit is not checked here."""
        if request_id in self._by_id:
            raise ConfigError(f"request_id={request_id!r} is already waiting", field="request_id", value=request_id)
        insort(self._keys, key)
        insort(self._arrivals, key[1])
        self._entries[key[1]] = _Entry(request_id, item, num_tokens)
        self._by_id[request_id] = key
        self.num_tokens += num_tokens

    def get(self, request_id: str) -> Item | None:
        """Return a request's item; None when it is not here."""
        key = self._by_id.get(request_id)
        return None if key is None else self._entries[key[1]].item

    def pop(self, request_id: str) -> Item | None:
        """Take a request out; None when it is not here."""
        key = self._by_id.pop(request_id, None)
        if key is None:
            return None
        del self._keys[bisect_left(self._keys, key)]
        del self._arrivals[bisect_left(self._arrivals, key[1])]
        entry = self._entries.pop(key[1])
        self.num_tokens -= entry.num_tokens
        return entry.item

    def update(self, request_id: str, rank: int, num_tokens: int) -> None:
        """Change what a waiting request is sorted by and counts; nothing when it is not here."""
        key = self._by_id.get(request_id)
        if key is None:
            return
        entry = self._entries[key[1]]
        self.num_tokens += num_tokens - entry.num_tokens
        self._entries[key[1]] = entry._replace(num_tokens=num_tokens)
        if key[0] != rank:
            del self._keys[bisect_left(self._keys, key)]
            self._by_id[request_id] = key = (rank, key[1])
            insort(self._keys, key)
