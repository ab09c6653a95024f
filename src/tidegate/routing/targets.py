"""Requests that name their rank, placed before all others."""

from __future__ import annotations

from tidegate.request import Request
from tidegate.routing.ledger import Ledger


def is_strict(request: Request) -> bool:
    """Tell whether only one rank may serve the request."""
    return request.attention_dp_rank is not None and not request.attention_dp_relax


def place_targets(ledger: Ledger) -> list[int]:
    """Place strict requests, then relaxed ones whose rank has room; return who else may be placed, in order.

    First come first: only as many as there are seats take part, so that a short request is not passed over for ever by
    long ones behind it, nor any by strict ones behind it. All that are returned find a seat.
    """
    rest = _first_come(ledger)
    for index in rest:
        rank = ledger.requests[index].attention_dp_rank
        if rank is not None and is_strict(ledger.requests[index]):
            ledger.assign(index, rank)
    for index in rest:
        rank = ledger.requests[index].attention_dp_rank
        if rank is not None and ledger.rank_of(index) is None and ledger.has_room(rank):
            ledger.assign(index, rank)
    return [index for index in rest if ledger.rank_of(index) is None]


def _first_come(ledger: Ledger) -> list[int]:
    seats = [max(ledger.num_seats(rank), 0) for rank in range(ledger.num_ranks)]
    total = sum(seats)
    chosen: list[int] = []
    for index, request in enumerate(ledger.requests):
        if len(chosen) == total:
            break
        rank = request.attention_dp_rank
        if rank is not None and is_strict(request):
            if seats[rank] == 0:
                continue
            seats[rank] -= 1
        chosen.append(index)
    return chosen
