"""What routing says, and what a router must offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.base import ConfigError, Int64Array
from tidegate.request import Request
from tidegate.routing.loads import RankLoads


@dataclass(frozen=True, slots=True)
class Assignment:
    """A request and the rank that serves it."""

    request_id: str
    rank: int


@dataclass(frozen=True, slots=True)
class Routing:
    """Every request routed is in exactly one of both, in the order in which they came."""

    assignments: tuple[Assignment, ...]
    queued: tuple[str, ...]

    def of_rank(self, rank: int) -> tuple[str, ...]:
        """Return the ids of the requests that ``rank`` gets."""
        return tuple(each.request_id for each in self.assignments if each.rank == rank)


class Router(Protocol):
    """Chooses a rank for each request; every rank runs it with equal arguments and must get equal results.

    Hence no clock, no randomness and exact arithmetic. What a router remembers changes in ``route`` only, and only when
    that returns, so replicas that are called alike stay alike.
    """

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Assign or queue each of ``requests``, which come in queue order.

        ``matches`` int64 ``[ranks, requests]`` are each request's prompt tokens that are cached on each rank; None:
        none are. No more are considered than there are seats, first come first; whoever finds none stays queued, and so
        does a request that asks strictly for a rank that is full.
        """
        ...


def check_target(request: Request, num_ranks: int) -> None:
    """Raise ``ConfigError`` when the request asks for a rank that does not exist."""
    rank = request.attention_dp_rank
    if rank is not None and rank >= num_ranks:
        raise ConfigError(
            f"attention_dp_rank={rank} must be in [0, {num_ranks - 1}]: there are {num_ranks} ranks",
            field="attention_dp_rank",
            value=rank,
        )
