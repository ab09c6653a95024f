"""Placement goes by uncached work, not by the number of requests; who retires frees a seat but still counts."""

import numpy as np

from tidegate.request import Request
from tidegate.routing import LeastTokens, PrefixAffinity, RankLoads, RoutingConfig
from tidegate.testing.serving import make_request


def loads(live: list[int], prefill: list[int], *, retiring: list[int] | None = None, seats: int = 64) -> RankLoads:
    n = len(live)
    return RankLoads(
        num_live=np.array(live),
        num_retiring=np.array(retiring or [0] * n),
        prefill_tokens=np.array(prefill),
        decode_tokens=np.zeros(n, np.int64),
        max_requests=np.full(n, seats),
    )


def rank_of(routing_of: object, request: Request) -> int:
    (assignment,) = routing_of.assignments  # type: ignore[attr-defined]  # a Routing
    assert assignment.request_id == request.request_id
    return int(assignment.rank)


def test_one_giant_outweighs_two_small_ones() -> None:
    request = make_request("next", 500)
    assert rank_of(LeastTokens().route(loads([1, 2], [10_000, 2_000]), [request]), request) == 1


def test_cached_tokens_are_no_work() -> None:
    request = make_request("next", 500)
    assert rank_of(LeastTokens().route(loads([1, 2], [1_000, 2_000]), [request]), request) == 0


def test_alternating_lengths_are_spread_evenly() -> None:
    requests = [make_request(f"r{i}", 200 if i % 2 else 8_000) for i in range(64)]

    routing = LeastTokens().route(loads([0] * 4, [0] * 4), requests)

    tokens = np.zeros(4)
    lengths = {r.request_id: r.num_prompt_tokens for r in requests}
    for assignment in routing.assignments:
        tokens[assignment.rank] += lengths[assignment.request_id]
    assert len(routing.assignments) == 64
    assert tokens.max() / tokens.mean() <= 1.25


def test_who_retires_frees_the_seat_but_counts_for_placement() -> None:
    held = loads([1, 1], [0, 0], retiring=[1, 0], seats=2)
    first, second = make_request("a", 10), make_request("b", 10)

    routing = LeastTokens().route(held, [first, second])

    assert [(a.request_id, a.rank) for a in routing.assignments] == [("a", 1), ("b", 0)]


def test_affinity_goes_where_the_prefix_is_unless_that_rank_is_loaded() -> None:
    request = make_request("next", 1_000)
    router = PrefixAffinity(RoutingConfig(policy="prefix_affinity"))
    matches = np.array([[900], [0]])

    assert rank_of(router.route(loads([1, 1], [1_000, 1_000]), [request], matches), request) == 0
    assert rank_of(router.route(loads([1, 1], [30_000, 1_000]), [request], matches), request) == 1
