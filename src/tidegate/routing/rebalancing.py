"""Which waiting requests would be better off on another rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.base import Int64Array, check_integer
from tidegate.request import Request
from tidegate.routing.config import RoutingConfig
from tidegate.routing.ledger import Ledger
from tidegate.routing.loads import RankLoads
from tidegate.routing.targets import is_strict


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that waits on ``rank`` and was never admitted: it owns nothing, so it can still go elsewhere."""

    request: Request
    rank: int


@dataclass(frozen=True, slots=True)
class Move:
    """A waiting request that goes from one rank to another."""

    request_id: str
    source: int
    target: int


def moves(
    loads: RankLoads, waiting: Sequence[WaitingRequest], config: RoutingConfig, matches: Int64Array | None = None
) -> tuple[Move, ...]:
    """Propose at most ``config.max_moves`` moves to ranks with free seats; ``waiting`` comes in queue order.

    ``loads`` count the waiting requests where they wait, ``matches`` are as for ``Router.route``. First, ranks with
    more requests than they admit give some away. Then a request leaves a rank for the one with fewest tokens to compute
    if that then has at least ``config.move_margin_tokens`` fewer than the first had. Every such move lowers the higher
    of the two, so moving ends, and no request goes back unless loads changed otherwise.

    A request that asks strictly for its rank stays, and under the ``conversation`` policy so does any turn of one: its
    rank is where its pages are.
    """
    ledger = Ledger(loads, [each.request for each in waiting], matches)
    for each in waiting:
        check_integer("rank", each.rank, 0, loads.num_ranks - 1)
    movable = [index for index, each in enumerate(waiting) if _may_move(each.request, config)]
    found: list[Move] = []
    while len(found) < config.max_moves:
        choice = next(_better(ledger, waiting, movable, config.move_margin_tokens), None)
        if choice is None:
            break
        index, target = choice
        ledger.withdraw(index, waiting[index].rank)
        ledger.assign(index, target)
        movable.remove(index)
        found.append(Move(waiting[index].request.request_id, waiting[index].rank, target))
    return tuple(found)


def _may_move(request: Request, config: RoutingConfig) -> bool:
    return not is_strict(request) and (config.policy != "conversation" or request.conversation_id is None)


def _better(
    ledger: Ledger, waiting: Sequence[WaitingRequest], movable: list[int], margin: int
) -> Iterator[tuple[int, int]]:
    """Yield moves worth making, the most urgent first: who waits longest on the rank that is worst off."""
    target = min(filter(ledger.has_room, range(ledger.num_ranks)), key=ledger.load, default=None)
    if target is None:
        return
    by_excess = sorted(range(ledger.num_ranks), key=ledger.num_seats)
    for source in by_excess:
        if ledger.num_seats(source) < 0:
            yield from ((index, target) for index in movable if waiting[index].rank == source)
    for source in sorted(range(ledger.num_ranks), key=ledger.load, reverse=True):
        for index in movable:
            after = ledger.prefill_tokens[target] + ledger.lengths[index] - ledger.matched(index)[target]
            if waiting[index].rank == source and after + margin <= ledger.prefill_tokens[source]:
                yield index, target
