"""When requests time out: a heap, so that asking costs nothing while nothing is due."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_SLACK = 64
"""Ended requests' entries that may stay in the heap before it is built anew."""


class Deadlines:
    """Deadlines by request id. Entries of ended requests stay in the heap unless they are many, and are passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._live: dict[str, float] = {}

    def __len__(self) -> int:
        """Count entries, those of ended requests among them: nothing is due when there are none."""
        return len(self._heap)

    def add(self, request_id: str, at_s: float) -> None:
        """Watch a request."""
        self._live[request_id] = at_s
        heappush(self._heap, (at_s, request_id))

    def forget(self, request_id: str) -> None:
        """Stop watching a request; nothing when it was not watched."""
        if self._live.pop(request_id, None) is not None and len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = [(at_s, name) for name, at_s in self._live.items()]
            heapify(self._heap)

    def due(self, now: float) -> list[str]:
        """Take out those whose time has come, the earliest first."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            at_s, request_id = heappop(self._heap)
            if self._live.get(request_id) == at_s:
                del self._live[request_id]
                found.append(request_id)
        return found
