"""Sends a load at a target and times what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.base import Clock, ConfigError, InternalError
from tidegate.bench.load import Load
from tidegate.bench.outcome import Outcome
from tidegate.bench.target import Progress, Target
from tidegate.request import Request


@dataclass(frozen=True, slots=True)
class Run:
    """All outcomes, in the order in which the requests ended."""

    outcomes: tuple[Outcome, ...]
    began_s: float


@dataclass(slots=True)
class _Flight:
    """A request under way."""

    request: Request
    num_tokens: int = 0
    first_token_s: float | None = None

    def take(self, progress: Progress) -> None:
        if progress.num_tokens and self.first_token_s is None:
            self.first_token_s = progress.at_s
        self.num_tokens += progress.num_tokens

    def outcome(self, last: Progress) -> Outcome:
        assert last.finish_reason is not None
        return Outcome(
            request_id=self.request.request_id,
            num_prompt_tokens=self.request.num_prompt_tokens,
            num_cached_tokens=last.num_cached_tokens,
            num_tokens=self.num_tokens,
            arrival_s=self.request.arrival_s,
            first_token_s=self.first_token_s,
            finished_s=last.at_s,
            finish_reason=last.finish_reason,
        )


@dataclass(slots=True)
class _Sender:
    """Decides what may be sent when. ``due_s`` is None in a closed loop."""

    waiting: deque[tuple[Request, float | None]]
    places: float
    flights: dict[str, _Flight] = field(default_factory=dict)

    def ready(self, now_s: float) -> list[Request]:
        """Take what may be sent now, in order."""
        sent = []
        while self.waiting and len(self.flights) < self.places:
            request, due_s = self.waiting[0]
            if due_s is not None and due_s > now_s:
                break
            self.waiting.popleft()
            request = replace(request, arrival_s=now_s if due_s is None else due_s)
            self.flights[request.request_id] = _Flight(request)
            sent.append(request)
        return sent

    def timeout_s(self, now_s: float) -> float | None:
        """How long nothing can become ready by time alone; None: only an ending request lets the next one go."""
        if not self.waiting or len(self.flights) >= self.places:
            return None
        due_s = self.waiting[0][1]
        return None if due_s is None else max(0.0, due_s - now_s)


def run_load(
    target: Target,
    requests: Sequence[Request],
    load: Load,
    clock: Clock,
    on_finish: Callable[[Outcome], None] = lambda _: None,
) -> Run:
    """Run every request to its end; a request the target refuses ends the run with that error."""
    if len({request.request_id for request in requests}) != len(requests):
        raise ConfigError("requests must have different ids")
    target.start()
    began_s = clock.now()
    arrivals = load.arrivals(len(requests))
    due = [None] * len(requests) if arrivals is None else [began_s + float(offset) for offset in arrivals]
    sender = _Sender(deque(zip(requests, due, strict=True)), load.concurrency or float("inf"))
    outcomes: list[Outcome] = []
    while sender.waiting or sender.flights:
        now_s = clock.now()
        for request in sender.ready(now_s):
            target.submit(request)
        for progress in target.wait(sender.timeout_s(now_s)):
            flight = sender.flights.get(progress.request_id)
            if flight is None:
                raise InternalError(f"progress of {progress.request_id!r}, which is not in flight")
            flight.take(progress)
            if progress.finish_reason is not None:
                outcomes.append(flight.outcome(progress))
                del sender.flights[progress.request_id]
                on_finish(outcomes[-1])
    return Run(tuple(outcomes), began_s)
