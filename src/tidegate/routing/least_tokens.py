"""The default router: by outstanding work, not by the number of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing.ledger import Ledger
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Routing
from tidegate.routing.targets import place_targets


class Placement(Protocol):
    """How requests that may go anywhere are placed."""

    def place(self, ledger: Ledger, rest: list[int]) -> None:
        """Place each of ``rest`` while any rank has room."""
        ...


@dataclass(frozen=True, slots=True)
class LeastTokens:
    """Longest first, each to the rank with the fewest tokens to compute, within ``fair_share_multiplier`` fair shares.

    Of equal ranks the one with less context decoding, then with fewer requests, then the lower one is taken; of equally
    long requests the one that came first goes first. Remembers nothing.
    """

    fair_share_multiplier: float = 2.0

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Assign or queue each request; see ``Router``."""
        ledger = Ledger(loads, requests, matches)
        self.place(ledger, place_targets(ledger))
        return ledger.routing()

    def place(self, ledger: Ledger, rest: list[int]) -> None:
        """Place each of ``rest`` while any rank has room."""
        ledger.set_share(len(rest), self.fair_share_multiplier)
        for index in longest_first(ledger, rest):
            if ranks := ledger.open_ranks():
                ledger.assign(index, min(ranks, key=ledger.load))


def longest_first(ledger: Ledger, rest: list[int]) -> list[int]:
    """Return ``rest`` by what must be computed even where most of it is cached, most first, equal ones in order."""
    return sorted(rest, key=lambda index: max(ledger.matched(index)) - ledger.lengths[index])
