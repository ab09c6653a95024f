"""The routers there are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing.config import RoutingConfig
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Placing, Router, Routing

_SCALE = 1 << 16
"""Weights become integers of this many parts, so that all ranks compare the same numbers."""


class LeastTokens:
    """The longest prompt first, onto the rank with the fewest uncached tokens outstanding.

    No rank gets more than ``fair_share_multiplier`` times its fair share of requests: with 1, requests would be
    counted rather than work, and a rank with two short prompts passed over for one with a giant.
    """

    needs_matches = False

    def __init__(self, fair_share_multiplier: float = 2.0) -> None:
        self._multiplier = fair_share_multiplier

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Place requests."""
        placing = Placing(loads, requests, matches)
        place_longest_first(placing, placing.place_targets(), self._multiplier)
        return placing.routing()


class PrefixAffinity:
    """What a rank would have to compute of a prompt, plus its load in proportion: the least of it wins."""

    needs_matches = True

    def __init__(self, config: RoutingConfig) -> None:
        self._weight = round(config.load_balance_weight * _SCALE)
        self._threshold = round(config.match_rate_threshold * _SCALE)
        self._multiplier = config.fair_share_multiplier

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Place requests, the longest first; a prompt of which no rank holds enough goes by load alone."""
        placing = Placing(loads, requests, matches)
        free = placing.place_targets()
        share = placing.share(len(free), self._multiplier)
        for index in sorted(free, key=lambda i: (-requests[i].num_prompt_tokens, i)):
            length = requests[index].num_prompt_tokens
            uncached = placing.uncached[:, index]
            if (length - int(uncached.min())) * _SCALE <= self._threshold * length:
                uncached = np.full_like(uncached, length)
            total = max(int(placing.prefill.sum()), length)
            rank = placing.best(uncached * _SCALE + self._weight * placing.prefill * length // total, share)
            if rank is not None:
                placing.place(index, rank)
        return placing.routing()


class ConversationAffinity:
    """A conversation stays on the rank of its first turn, so that its prefix is found there.

    While that rank is full its turns stay queued: elsewhere all of the conversation would be computed again. The map
    of the last ``max_sessions`` conversations is the router's own; it changes in ``route`` alone, alike on every rank.
    """

    needs_matches = False

    def __init__(self, max_sessions: int, fair_share_multiplier: float = 2.0) -> None:
        self._max_sessions = max_sessions
        self._multiplier = fair_share_multiplier
        self._homes: OrderedDict[str, int] = OrderedDict()

    @property
    def num_sessions(self) -> int:
        """Conversations that are remembered."""
        return len(self._homes)

    def route(self, loads: RankLoads, requests: Sequence[Request], matches: Int64Array | None = None) -> Routing:
        """Place requests: known conversations at home, everybody else by tokens."""
        placing = Placing(loads, requests, matches)
        free = placing.place_targets()
        strangers, seen = [], set()
        for index in free:
            name = requests[index].conversation_id
            home = None if name is None else self._homes.get(name)
            if home is not None and home < loads.num_ranks:
                if placing.live[home] < placing.cap[home]:
                    placing.place(index, home)
            elif name is None or name not in seen:
                strangers.append(index)  # of several first turns the first is placed, and the others follow it later
            seen.add(name)
        place_longest_first(placing, strangers, self._multiplier)
        routing = placing.routing()
        names = {request.request_id: request.conversation_id for request in requests}
        for assignment in routing.assignments:
            self._remember(names[assignment.request_id], assignment.rank)
        return routing

    def _remember(self, name: str | None, rank: int) -> None:
        if name is None:
            return
        self._homes[name] = rank
        self._homes.move_to_end(name)
        if len(self._homes) > self._max_sessions:
            self._homes.popitem(last=False)


def place_longest_first(placing: Placing, free: Sequence[int], multiplier: float) -> None:
    """Place requests by tokens, within so many fair shares."""
    share = placing.share(len(free), multiplier)
    for index in sorted(free, key=lambda i: (-placing.requests[i].num_prompt_tokens, i)):
        rank = placing.best(placing.prefill, share)
        if rank is not None:
            placing.place(index, rank)


def router_of(config: RoutingConfig) -> Router:
    """Return the router that the settings name."""
    if config.policy == "prefix_affinity":
        return PrefixAffinity(config)
    if config.policy == "conversation":
        return ConversationAffinity(config.max_sessions, config.fair_share_multiplier)
    return LeastTokens(config.fair_share_multiplier)
