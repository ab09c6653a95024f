"""The loads of one routing call as they grow with every request placed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tidegate.base import ConfigError, Int64Array
from tidegate.request import Request
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Assignment, Routing, check_target


class Ledger:
    """Requests are named by their place in ``requests``. Python integers, because sums and products must be exact."""

    def __init__(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None) -> None:
        self.requests = requests
        self.lengths = [request.num_prompt_tokens for request in requests]
        self.num_ranks = loads.num_ranks
        self.prefill_tokens: list[int] = loads.prefill_tokens.tolist()
        self._decode_tokens: list[int] = loads.decode_tokens.tolist()
        self._num_live: list[int] = loads.num_live.tolist()
        self._num_placed: list[int] = (loads.num_live + loads.num_retiring).tolist()
        self._limits: list[int] = loads.max_requests.tolist()
        self._share = 0
        self._rank_of: list[int | None] = [None] * len(requests)
        _check_requests(requests, loads.num_ranks)
        self._matches = _match_rows(matches, self.lengths, loads.num_ranks)

    def has_room(self, rank: int) -> bool:
        """Tell whether the rank may admit one more."""
        return self.num_seats(rank) > 0

    def num_seats(self, rank: int) -> int:
        """Return how many more requests the rank may admit; negative when it has too many."""
        return self._limits[rank] - self._num_live[rank]

    def rank_of(self, index: int) -> int | None:
        """Return where a request was placed; None while it was not."""
        return self._rank_of[index]

    def matched(self, index: int) -> list[int]:
        """Return the request's cached prompt tokens on each rank."""
        return self._matches[index] if self._matches else [0] * self.num_ranks

    def load(self, rank: int) -> tuple[int, int, int, int]:
        """Return what placement compares: tokens to compute, then decoding context, then requests, then the rank."""
        return self.prefill_tokens[rank], self._decode_tokens[rank], self._num_placed[rank], rank

    def set_share(self, num_coming: int, multiplier: float) -> None:
        """Fix how many requests a rank takes before others had theirs, with ``num_coming`` still to be placed."""
        fair = Fraction(multiplier) * (sum(self._num_live) + num_coming) / self.num_ranks
        self._share = max(-(-fair.numerator // fair.denominator), *self._num_live)

    def open_ranks(self) -> list[int]:
        """Return the ranks below their share, or any that have room when none is; empty when all are full."""
        room = [rank for rank in range(self.num_ranks) if self.has_room(rank)]
        return [rank for rank in room if self._num_live[rank] < self._share] or room

    def assign(self, index: int, rank: int) -> None:
        """Give the request to the rank, which computes what it has not cached and attends to the rest."""
        cached = self.matched(index)[rank]
        self._rank_of[index] = rank
        self.prefill_tokens[rank] += self.lengths[index] - cached
        self._decode_tokens[rank] += cached
        self._num_live[rank] += 1
        self._num_placed[rank] += 1

    def withdraw(self, index: int, rank: int) -> None:
        """Take a request that the loads count on the rank away from it."""
        self.prefill_tokens[rank] -= self.lengths[index] - self.matched(index)[rank]
        self._num_live[rank] -= 1
        self._num_placed[rank] -= 1

    def routing(self) -> Routing:
        """Return what was placed where; everything else is queued."""
        placed = list(zip(self.requests, self._rank_of, strict=True))
        return Routing(
            tuple(Assignment(request.request_id, rank) for request, rank in placed if rank is not None),
            tuple(request.request_id for request, rank in placed if rank is None),
        )


def _check_requests(requests: Sequence[Request], num_ranks: int) -> None:
    seen: set[str] = set()
    for request in requests:
        check_target(request, num_ranks)
        if request.request_id in seen:
            raise ConfigError(f"request_id={request.request_id!r} is routed twice in one call", field="request_id")
        seen.add(request.request_id)


def _match_rows(matches: Int64Array | None, lengths: list[int], num_ranks: int) -> list[list[int]]:
    """Return cached tokens as ``[request][rank]``; empty when nothing is cached anywhere."""
    if matches is None:
        return []
    _check_array(matches, (num_ranks, len(lengths)))
    bad = (matches < 0) | (matches > np.array(lengths, dtype=np.int64))
    if bad.any():
        rank, index = (int(at) for at in np.argwhere(bad)[0])
        raise ConfigError(
            f"matches[{rank}, {index}]={matches[rank, index]} must be in [0, {lengths[index]}], the prompt's length",
            field="matches",
            value=int(matches[rank, index]),
        )
    rows: list[list[int]] = matches.T.tolist()
    return rows


def _check_array(matches: object, shape: tuple[int, int]) -> None:
    if not isinstance(matches, np.ndarray) or matches.dtype != np.int64 or matches.shape != shape:
        raise ConfigError(f"matches must be an int64 array of shape {list(shape)}: ranks, requests", field="matches")
