"""The waiting queue: ordered by a key, cheap at both ends, bounded."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from tidegate.base import ConfigError, QueueFull

Item = TypeVar("Item")
QueueKey = tuple[int, int]
"""(priority or 0, order of arrival): low first; the second part makes keys distinct."""


class WaitingQueue(Generic[Item]):
    """Items by key. First come first served when all keys start with 0, else priority, then first come."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._keys: list[QueueKey] = []
        self._items: dict[QueueKey, tuple[str, Item]] = {}
        self._by_id: dict[str, QueueKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __iter__(self) -> Iterator[Item]:
        """Yield items in order; the queue must not change meanwhile."""
        for key in self._keys:
            yield self._items[key][1]

    def check_room(self) -> None:
        """Raise ``QueueFull`` when one more submission would exceed the limit."""
        if self._limit is not None and len(self._keys) >= self._limit:
            raise QueueFull(
                f"{len(self._keys)} requests wait and max_waiting={self._limit}",
                waiting=len(self._keys),
                limit=self._limit,
            )

    def push(self, request_id: str, key: QueueKey, item: Item) -> None:
        """Insert by key. A suspended request comes back this way, so the limit is not checked here."""
        if request_id in self._by_id:
            raise ConfigError(f"request_id={request_id!r} is already waiting", field="request_id", value=request_id)
        insort(self._keys, key)
        self._items[key] = (request_id, item)
        self._by_id[request_id] = key

    def pop(self, request_id: str) -> Item | None:
        """Take a request out; None when it is not here."""
        key = self._by_id.pop(request_id, None)
        if key is None:
            return None
        del self._keys[bisect_left(self._keys, key)]
        return self._items.pop(key)[1]
