"""Requests on their way to a rank: given to rank 0, known to all, owned by nobody until one of them takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tidegate.base import Closed, ConfigError, Int64Array, InternalError, check_bool, check_text
from tidegate.request import (
    Envelope,
    FinishReason,
    Request,
    TokenDelta,
    WaitingQueue,
    decode_envelope,
    encode_envelope,
)
from tidegate.routing import RankLoads, RoutingConfig, check_target, router_of
from tidegate.runtime.group.exchange import Exchange
from tidegate.runtime.group.handover import Handover
from tidegate.runtime.group.rank import Rank
from tidegate.scheduling import Column, SchedulerConfig, output_of_unstarted

_MOST_LOOKED_AT = 4096
"""Queued requests that are looked at in a step: those behind so many that wait for a full rank wait with them."""


@dataclass(frozen=True, slots=True)
class _Queued:
    request: Request
    is_streamed: bool


class Intake:
    """The queue in front of all ranks. Every process holds the same one and empties it by the same decisions."""

    def __init__(
        self,
        routing: RoutingConfig,
        scheduler: SchedulerConfig,
        num_ranks: int,
        *,
        check: Callable[[Request], None],
        now: Callable[[], float],
    ) -> None:
        self._router = router_of(routing)
        self._handover = Handover(routing)
        self._wants_matches = routing.wants_matches
        self._num_ranks = num_ranks
        self._max_requests = scheduler.max_batch_size
        self._by_priority = scheduler.policy == "priority"
        self._check = check
        self._now = now
        self._queue: WaitingQueue[_Queued] = WaitingQueue(scheduler.max_waiting)
        self._num_queued = 0
        self._deadlines: dict[str, float] = {}
        self._known: set[str] = set()
        self._new: list[_Queued] = []
        self._aborts: list[str] = []
        self._stops = False
        self._payload = b""
        self._ended: list[TokenDelta] = []
        self.is_stopped = False

    @property
    def has_pending(self) -> bool:
        """Whether rank 0 has something for the others, or an end to report."""
        is_stopping = self._stops and not self.is_stopped
        return bool(self._new or self._aborts or is_stopping or self._ended)

    @property
    def num_queued(self) -> int:
        """Requests that no rank has taken yet."""
        return len(self._queue) + len(self._new)

    def submit(self, request: Request, *, stream: bool) -> None:
        """Take a request at rank 0.

        Raises ``ConfigError``, ``RequestTooLong`` or ``QueueFull``, and then nothing has changed.
        """
        if self._stops or self.is_stopped:
            raise Closed("the ranks were told to stop")
        self._check(request)
        check_bool("stream", stream)
        if request.request_id in self._known:
            raise ConfigError(
                f"request_id={request.request_id!r} is in use", field="request_id", value=request.request_id
            )
        check_target(request, self._num_ranks)
        self._queue.check_room(len(self._new))
        self._known.add(request.request_id)
        self._new.append(_Queued(request, stream))

    def abort(self, request_id: str) -> None:
        """End a request at the next step; one that is not known is ignored."""
        check_text("request_id", request_id)
        if request_id in self._known:
            self._aborts.append(request_id)

    def stop(self) -> None:
        """Cancel what has not ended, and let every process end once all of that was answered."""
        self._stops = True
        self._aborts += self._known

    def forget(self, request_id: str) -> None:
        """Note that a request has ended."""
        self._known.discard(request_id)

    def announce(self) -> int:
        """Seal what is to be sent with the next step, and return its size in bytes."""
        now = self._now()
        self._aborts += [name for name, due in self._deadlines.items() if now >= due and name not in self._aborts]
        stops = self._stops and not self._known
        if not (self._new or self._aborts or stops):
            return 0
        envelope = Envelope(
            requests=tuple(entry.request for entry in self._new),
            streamed=tuple(entry.request.request_id for entry in self._new if entry.is_streamed),
            aborts=tuple(self._aborts),
            stops=stops,
        )
        self._payload = encode_envelope(envelope)
        return len(self._payload)

    def ended(self) -> list[TokenDelta]:
        """Hand out the ends of requests that no rank ever had."""
        deltas, self._ended = self._ended, []
        return deltas

    def offer_moves(self, rows: Int64Array, before: Int64Array, local: Sequence[int], ranks: Sequence[Rank]) -> None:
        """Write into the rows of local ranks which waiting request each hands over, by the loads of the last step."""
        self._handover.offer(rows, local, ranks, _loads(before, self._max_requests))

    def route(self, rows: Int64Array, exchange: Exchange, ranks: Sequence[Rank]) -> tuple[tuple[str, int], ...]:
        """Take in what rank 0 sent, let offered requests change ranks, and give queued ones to ranks with room."""
        num_bytes = int(rows[0, Column.INBOX_BYTES])
        aborted: tuple[str, ...] = ()
        if num_bytes:
            envelope = decode_envelope(exchange.broadcast(self._payload, num_bytes))
            aborted = envelope.aborts
            self._take_in(envelope, exchange, ranks)
        moved = self._handover.carry_out(rows, exchange.local, ranks, aborted)
        return moved + self._place(rows, exchange, ranks)

    def _place(self, rows: Int64Array, exchange: Exchange, ranks: Sequence[Rank]) -> tuple[tuple[str, int], ...]:
        if not len(self._queue):
            return ()
        loads = _loads(rows, self._max_requests)
        shown = self._placeable(np.maximum(loads.max_requests - loads.num_live, 0).tolist())
        if not shown:
            return ()
        matches = None
        if self._wants_matches:
            local = np.array([[rank.match(request) for request in shown] for rank in ranks], dtype=np.int64)
            matches = exchange.gather(local)
        routing = self._router.route(loads, shown, matches)
        routed = tuple((assignment.request_id, assignment.rank) for assignment in routing.assignments)
        for request_id, target in routed:
            entry = self._leave(request_id)
            if entry is None:
                raise InternalError(f"request {request_id!r} was routed but does not wait", request_id=request_id)
            self._handover.note(entry.request, is_streamed=entry.is_streamed)
            if target in exchange.local:
                ranks[exchange.local.index(target)].submit(entry.request, stream=entry.is_streamed)
        return routed

    def _placeable(self, seats: list[int]) -> list[Request]:
        """Return as many of the first requests as there are seats, without those that wait for a rank that is full."""
        num_seats, found = sum(seats), list[Request]()
        for entry in islice(self._queue, _MOST_LOOKED_AT):
            if len(found) >= num_seats:
                break
            request = entry.request
            if request.attention_dp_rank is not None and not request.attention_dp_relax:
                seats[request.attention_dp_rank] -= 1
                if seats[request.attention_dp_rank] < 0:
                    continue
            found.append(request)
        return found

    def _enter(self, entry: _Queued) -> None:
        request = entry.request
        rank = request.priority if self._by_priority else 0
        self._queue.push(request.request_id, (rank, self._num_queued), entry)
        self._num_queued += 1
        if request.timeout_s is not None:
            self._deadlines[request.request_id] = request.arrival_s + request.timeout_s

    def _leave(self, request_id: str) -> _Queued | None:
        self._deadlines.pop(request_id, None)
        return self._queue.pop(request_id)

    def _take_in(self, envelope: Envelope, exchange: Exchange, ranks: Sequence[Rank]) -> None:
        streamed = set(envelope.streamed)
        for request in envelope.requests:
            self._enter(_Queued(request, request.request_id in streamed))
        for request_id in envelope.aborts:
            entry = self._leave(request_id)
            if entry is None:
                for rank in ranks:
                    rank.session.abort(request_id)
            elif 0 in exchange.local:
                self._ended.append(_aborted(entry.request, self._now()))
        self.is_stopped = envelope.stops
        self._new, self._aborts, self._payload = [], [], b""


def _loads(rows: Int64Array, max_requests: int) -> RankLoads:
    return RankLoads(
        num_live=rows[:, Column.ACTIVE] + rows[:, Column.WAITING],
        num_retiring=rows[:, Column.RETIRING],
        prefill_tokens=rows[:, Column.BACKLOG_TOKENS],
        decode_tokens=rows[:, Column.DECODE_TOKENS],
        max_requests=np.full(len(rows), max_requests, dtype=np.int64),
    )


def _aborted(request: Request, now: float) -> TokenDelta:
    output = output_of_unstarted(request, FinishReason.ABORTED, now=now)
    return TokenDelta(request_id=request.request_id, tokens=output.tokens, output=output)
