"""A router that keeps the turns of a conversation on one rank, where their pages are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing.least_tokens import Placement
from tidegate.routing.ledger import Ledger
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Routing
from tidegate.routing.targets import place_targets


class ConversationAffinity:
    """Pins a conversation to the rank of its last turn; ``inner`` places first turns and what has no conversation.

    When the rank is full the turn moves rather than waits: ``inner`` places it, and the pin moves with it, because the
    whole conversation is computed and cached there now. The ``max_sessions`` conversations used last keep their pins.
    These are the router's only memory and change at the end of ``route`` alone, so replicas called alike stay alike and
    a refused call changes nothing. An object rather than a state handed in and out, since copying the map would cost
    more than routing does.
    """

    def __init__(self, inner: Placement, max_sessions: int = 65536) -> None:
        self._inner = inner
        self._max_sessions = max_sessions
        self._pins: OrderedDict[str, int] = OrderedDict()

    def rank_of(self, conversation_id: str) -> int | None:
        """Return the rank a conversation is pinned to; None for one that is new or forgotten. Counts as no use."""
        return self._pins.get(conversation_id)

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Assign or queue each request; see ``Router``."""
        ledger = Ledger(loads, requests, matches)
        rest = place_targets(ledger)
        pins = self._pins_after(ledger)
        rest = [index for index in rest if not _place_pinned(ledger, index, pins)]
        firsts, followers = _split(ledger, rest)
        self._inner.place(ledger, firsts)
        for index in firsts:
            _pin(ledger, index, pins)
        for index in followers:
            if not _place_pinned(ledger, index, pins):
                self._inner.place(ledger, [index])
                _pin(ledger, index, pins)
        self._remember(ledger)
        return ledger.routing()

    def _pins_after(self, ledger: Ledger) -> dict[str, int]:
        """Return the pins that matter in this call, as they are once the named targets are placed."""
        names = [request.conversation_id for request in ledger.requests]
        pins = {name: self._pins[name] for name in names if name is not None and name in self._pins}
        for index in range(len(names)):
            _pin(ledger, index, pins)
        return pins

    def _remember(self, ledger: Ledger) -> None:
        for index, request in enumerate(ledger.requests):
            rank = ledger.rank_of(index)
            if rank is not None and request.conversation_id is not None:
                self._pins[request.conversation_id] = rank
                self._pins.move_to_end(request.conversation_id)
        while len(self._pins) > self._max_sessions:
            self._pins.popitem(last=False)


def _place_pinned(ledger: Ledger, index: int, pins: dict[str, int]) -> bool:
    name = ledger.requests[index].conversation_id
    rank = None if name is None else pins.get(name)
    if rank is None or rank >= ledger.num_ranks or not ledger.has_room(rank):
        return False
    ledger.assign(index, rank)
    return True


def _split(ledger: Ledger, rest: list[int]) -> tuple[list[int], list[int]]:
    """Return who is placed first, and further turns of conversations among them."""
    seen: set[str] = set()
    firsts: list[int] = []
    followers: list[int] = []
    for index in rest:
        name = ledger.requests[index].conversation_id
        (followers if name is not None and name in seen else firsts).append(index)
        if name is not None:
            seen.add(name)
    return firsts, followers


def _pin(ledger: Ledger, index: int, pins: dict[str, int]) -> None:
    name, rank = ledger.requests[index].conversation_id, ledger.rank_of(index)
    if name is not None and rank is not None:
        pins[name] = rank
