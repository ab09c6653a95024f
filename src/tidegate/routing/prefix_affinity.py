"""A router that weighs what a rank has cached of a prompt against what it has to do already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing.least_tokens import longest_first
from tidegate.routing.ledger import Ledger
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Routing
from tidegate.routing.targets import place_targets


@dataclass(frozen=True, slots=True)
class PrefixAffinity:
    """The lowest of *uncached tokens + weight × load*, where load is the rank's part of all load, times the prompt.

    Cached prefixes count only when the longest is more than ``match_rate_threshold`` of the prompt. Requests with equal
    beginnings come together through ``matches`` alone: while nothing is cached they spread like any others. Equal
    scores are decided as by ``LeastTokens``. Remembers nothing.
    """

    load_balance_weight: float = 1.0
    match_rate_threshold: float = 0.1
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
                scores = self._scores(ledger, index)
                ledger.assign(index, min(ranks, key=lambda rank: (scores[rank], ledger.load(rank))))  # at once

    def _scores(self, ledger: Ledger, index: int) -> list[int]:
        """Return the scores times a common factor, which makes them integers: replicas must agree on every tie."""
        length, cached = ledger.lengths[index], ledger.matched(index)
        if max(cached) <= Fraction(self.match_rate_threshold) * length:
            cached = [0] * ledger.num_ranks
        weight, unit = self.load_balance_weight.as_integer_ratio()
        all_load = max(sum(ledger.prefill_tokens), length)
        return [
            (length - m) * all_load * unit + weight * load * length
            for m, load in zip(cached, ledger.prefill_tokens, strict=True)
        ]
