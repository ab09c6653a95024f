"""Waiting requests that go from one rank to another, while they own nothing.

The rank that has one says so in its row: a hash of the id, and who takes it. Every process has seen every request on
its way to a rank, so the request itself need not travel again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing import RankLoads, RoutingConfig, WaitingRequest, moves
from tidegate.runtime.group.rank import Rank
from tidegate.scheduling import Column

_MOST_LOOKED_AT = 16
"""Waiting requests of a rank among which one to hand over is sought."""

_MOST_KNOWN = 1 << 16
"""Placed requests that are remembered; one that was placed longer ago stays where it is."""


class Handover:
    """Offers moves in rows and carries them out when all have seen them."""

    def __init__(self, config: RoutingConfig) -> None:
        self._config = replace(config, max_moves=min(config.max_moves, 1))
        self._placed: OrderedDict[int, tuple[Request, bool]] = OrderedDict()

    def note(self, request: Request, *, is_streamed: bool) -> None:
        """Remember a request that was given to a rank."""
        self._placed[_key(request.request_id)] = (request, is_streamed)
        if len(self._placed) > _MOST_KNOWN:
            self._placed.popitem(last=False)

    def offer(self, rows: Int64Array, places: Sequence[int], ranks: Sequence[Rank], loads: RankLoads) -> None:
        """Write into the rows of local ranks, ``places[i]`` of all, what each hands over, if anything."""
        if not self._config.max_moves or loads.num_ranks == 1 or (loads.num_live >= loads.max_requests).all():
            return
        for row, place, rank in zip(rows, places, ranks, strict=True):
            if not row[Column.WAITING] or int(loads.prefill_tokens[place]) <= int(loads.prefill_tokens.min()):
                continue
            waiting = [
                WaitingRequest(request, place)
                for request in rank.movable(_MOST_LOOKED_AT)
                if _key(request.request_id) in self._placed
            ]
            for move in moves(loads, waiting, self._config) if waiting else ():
                row[Column.MOVED], row[Column.MOVED_TO] = _key(move.request_id), move.target

    def carry_out(
        self, rows: Int64Array, local: Sequence[int], ranks: Sequence[Rank], aborted: Sequence[str]
    ) -> tuple[tuple[str, int], ...]:
        """Let requests change ranks, except those that were cancelled in this step; return who went where."""
        moved = []
        for source in np.flatnonzero(rows[:, Column.MOVED]).tolist():
            request, is_streamed = self._placed[int(rows[source, Column.MOVED])]
            if request.request_id in aborted:
                continue
            target = int(rows[source, Column.MOVED_TO])
            if source in local:
                ranks[local.index(source)].session.withdraw(request.request_id)
            if target in local:
                ranks[local.index(target)].submit(request, stream=is_streamed)
            moved.append((request.request_id, target))
        return tuple(moved)


def _key(request_id: str) -> int:
    """Return 63 bits of an id, never 0."""
    return (int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "little") >> 1) or 1
