"""What a router is, and the placing that all of them share: strict targets, wishes, then the rest by score.

Every process routes the same requests over the same loads and must come to the same end, so nothing here depends on
the order of a set, on a clock or on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.base import ConfigError, Int64Array
from tidegate.request import Request
from tidegate.routing.loads import RankLoads


@dataclass(frozen=True, slots=True)
class Assignment:
    """A request goes to a rank."""

    request_id: str
    rank: int


@dataclass(frozen=True, slots=True)
class Routing:
    """Every request is in one of the two: assigned, or still queued, in order."""

    assignments: tuple[Assignment, ...]
    queued: tuple[str, ...]


class Router(Protocol):
    """Chooses ranks for requests in queue order."""

    @property
    def needs_matches(self) -> bool:
        """Whether ``route`` wants to know what each rank's cache holds of each prompt."""
        ...

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Place requests; ``matches`` int64 ``[ranks, requests]`` are tokens that a rank could reuse."""
        ...


def check_target(request: Request, num_ranks: int) -> None:
    """Raise ``ConfigError`` for a target that is no rank."""
    target = request.attention_dp_rank
    if target is not None and target >= num_ranks:
        raise ConfigError(
            f"attention_dp_rank={target} must be in [0, {num_ranks - 1}], the ranks there are",
            field="attention_dp_rank",
            value=target,
        )


class Placing:
    """Places requests one by one, counting what each rank has got. Lives for one call of ``route``."""

    def __init__(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None) -> None:
        self.requests = requests
        self.live = loads.num_live.copy()
        self.placed = loads.num_live + loads.num_retiring
        self.prefill = loads.prefill_tokens.copy()
        self.decode = loads.decode_tokens
        self.cap = loads.max_requests
        self.uncached = _uncached(loads.num_ranks, requests, matches)
        self._assigned: dict[int, int] = {}

    @property
    def left(self) -> list[int]:
        """Places in ``requests`` of those that are not assigned, in order."""
        return [i for i in range(len(self.requests)) if i not in self._assigned]

    def place(self, index: int, rank: int) -> None:
        """Assign a request."""
        self._assigned[index] = rank
        self.live[rank] += 1
        self.placed[rank] += 1
        self.prefill[rank] += self.uncached[rank, index]

    def place_targets(self) -> list[int]:
        """Serve strict targets first, then wishes that can be met; return who may go anywhere, in order."""
        for strict in (True, False):
            for index in self.left:
                request = self.requests[index]
                target = request.attention_dp_rank
                if target is not None and request.attention_dp_relax != strict and self.live[target] < self.cap[target]:
                    self.place(index, target)
        return [i for i in self.left if self._is_free(self.requests[i])]

    def share(self, num_left: int, multiplier: float = 1.0) -> Int64Array:
        """Return how many requests each rank may have: its fair share, never more than its cap."""
        fair = int(np.ceil(multiplier * -(-(int(self.live.sum()) + num_left) // len(self.live))))
        most: Int64Array = np.minimum(max(fair, int(self.live.max())), self.cap)
        return most

    def best(self, score: Int64Array, share: Int64Array) -> int | None:
        """Return the rank below its share with the least score, then fewest requests, then lowest number."""
        able = np.flatnonzero(self.live < share)
        if not len(able):
            return None
        order = np.lexsort((able, self.placed[able], self.decode[able], score[able]))
        return int(able[order[0]])

    def routing(self) -> Routing:
        """Return what came of it."""
        return Routing(
            tuple(Assignment(self.requests[i].request_id, self._assigned[i]) for i in sorted(self._assigned)),
            tuple(self.requests[i].request_id for i in self.left),
        )

    @staticmethod
    def _is_free(request: Request) -> bool:
        return request.attention_dp_rank is None or request.attention_dp_relax


def _uncached(num_ranks: int, requests: Sequence[Request], matches: Int64Array | None) -> Int64Array:
    lengths = np.array([request.num_prompt_tokens for request in requests], dtype=np.int64)
    if matches is None:
        return np.broadcast_to(lengths, (num_ranks, len(lengths)))
    if matches.shape != (num_ranks, len(lengths)):
        raise ConfigError(f"matches of shape {matches.shape} must be {(num_ranks, len(lengths))}", field="matches")
    uncached: Int64Array = np.maximum(lengths - matches, 0)
    return uncached
