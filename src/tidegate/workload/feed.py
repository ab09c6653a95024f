"""Who comes when: a workload as it is let in, turn after turn."""

from __future__ import annotations

import heapq
import math

from tidegate.base import InternalError
from tidegate.workload.workload import Workload, WorkloadRequest


class Feed:
    """Lets a workload's requests in as their time comes, as their earlier turns end, and as many as its load allows.

    It never looks at a clock: whoever drives it says what time it is. Requests due at the same time come in the
    workload's order.
    """

    def __init__(self, workload: Workload) -> None:
        self._requests = workload.requests
        self._limit = math.inf if workload.concurrency is None else workload.concurrency
        self._later: dict[str, list[int]] = {}
        self._due: list[tuple[float, int]] = []
        for place, request in enumerate(self._requests):
            if request.after is None:
                self._due.append((request.arrival_s, place))
            else:
                self._later.setdefault(request.after, []).append(place)
        heapq.heapify(self._due)
        self._in_flight: set[str] = set()
        self._freed_s = 0.0

    @property
    def next_s(self) -> float | None:
        """When the next request comes if nothing ends before; None if none does."""
        return self._due[0][0] if self._due and len(self._in_flight) < self._limit else None

    @property
    def num_left(self) -> int:
        """How many requests have not come yet."""
        return len(self._due) + sum(map(len, self._later.values()))

    @property
    def is_done(self) -> bool:
        """Whether every request has come and ended."""
        return not self._due and not self._later and not self._in_flight

    def due(self, now: float) -> list[tuple[WorkloadRequest, float]]:
        """Let in what is due by ``now`` (s): each request with the time at which it came, which may be earlier.

        Under a closed load a request comes when another leaves it room, not when it could have come first.
        """
        come = []
        while self._due and self._due[0][0] <= now and len(self._in_flight) < self._limit:
            due_s, place = heapq.heappop(self._due)
            self._in_flight.add(self._requests[place].request_id)
            come.append((self._requests[place], max(due_s, self._freed_s)))
        return come

    def ended(self, request_id: str, now: float) -> None:
        """Note that a request has ended at ``now`` (s); turns behind it come when their user has thought."""
        if request_id not in self._in_flight:
            raise InternalError(f"request {request_id!r} ended without being in flight")
        if len(self._in_flight) >= self._limit:
            self._freed_s = now
        self._in_flight.remove(request_id)
        for place in self._later.pop(request_id, ()):
            request = self._requests[place]
            heapq.heappush(self._due, (max(request.arrival_s, now + request.think_s), place))
