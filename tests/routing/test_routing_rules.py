"""What holds for every router, whatever it is asked."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.loads import ask, busy, idle
from tidegate.base import Int64Array
from tidegate.request import Request
from tidegate.routing import (
    ConversationAffinity,
    LeastTokens,
    PrefixAffinity,
    RankLoads,
    Router,
    RoutingConfig,
    router_of,
)

ROUTERS = ["least_tokens", "prefix_affinity", "conversation"]


@dataclass(frozen=True)
class Case:
    loads: RankLoads
    requests: list[Request]
    matches: Int64Array | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_ranks = draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 4), min_size=num_ranks, max_size=num_ranks)
    tokens = st.lists(st.integers(0, 60), min_size=num_ranks, max_size=num_ranks)
    loads = busy(draw(counts), prefill=draw(tokens), decode=draw(tokens), retiring=draw(counts), limits=draw(counts))
    requests = [
        ask(
            f"r{i}",
            draw(st.integers(1, 40)),
            rank=draw(st.none() | st.integers(0, num_ranks - 1)),
            strict=draw(st.booleans()),
            conversation=draw(st.sampled_from([None, None, "x", "y"])),
        )
        for i in range(draw(st.integers(0, 10)))
    ]
    if not draw(st.booleans()):
        return Case(loads, requests, None)
    cached = [[draw(st.integers(0, request.num_prompt_tokens)) for request in requests] for _ in range(num_ranks)]
    return Case(loads, requests, np.array(cached, dtype=np.int64).reshape(num_ranks, len(requests)))


def router(name: str) -> Router:
    return router_of(RoutingConfig(policy=name, max_sessions=1))  # type: ignore[arg-type]  # one of the policies


@pytest.mark.parametrize("name", ROUTERS)
@given(case=cases())
def test_every_request_is_assigned_once_or_queued_in_order(name: str, case: Case) -> None:
    routing = router(name).route(case.loads, case.requests, case.matches)

    order = {request.request_id: place for place, request in enumerate(case.requests)}
    assigned = [order[each.request_id] for each in routing.assignments]
    queued = [order[request_id] for request_id in routing.queued]
    assert sorted(assigned + queued) == list(range(len(case.requests)))
    assert assigned == sorted(assigned)
    assert queued == sorted(queued)


@pytest.mark.parametrize("name", ROUTERS)
@given(case=cases())
def test_no_rank_gets_more_than_it_admits(name: str, case: Case) -> None:
    routing = router(name).route(case.loads, case.requests, case.matches)

    for rank in range(case.loads.num_ranks):
        room = int(case.loads.max_requests[rank] - case.loads.num_live[rank])
        assert len(routing.of_rank(rank)) <= max(room, 0)


@pytest.mark.parametrize("name", ROUTERS)
@given(case=cases())
def test_strict_requests_go_nowhere_else(name: str, case: Case) -> None:
    routing = router(name).route(case.loads, case.requests, case.matches)

    by_id = {request.request_id: request for request in case.requests}
    for each in routing.assignments:
        request = by_id[each.request_id]
        assert request.attention_dp_relax or request.attention_dp_rank in (None, each.rank)


@pytest.mark.parametrize("name", ROUTERS)
@given(case=cases())
def test_whoever_may_go_anywhere_waits_only_when_every_seat_is_taken(name: str, case: Case) -> None:
    routing = router(name).route(case.loads, case.requests, case.matches)

    seats = int(np.maximum(case.loads.max_requests - case.loads.num_live, 0).sum())
    by_id = {request.request_id: request for request in case.requests}
    free = [r for r in routing.queued if by_id[r].attention_dp_relax or by_id[r].attention_dp_rank is None]
    assert not free or len(routing.assignments) == seats


@pytest.mark.parametrize("name", ROUTERS)
@given(calls=st.lists(cases(), max_size=4))
def test_replicas_called_alike_answer_alike(name: str, calls: list[Case]) -> None:
    one, other = router(name), router(name)

    for case in calls:
        assert one.route(case.loads, case.requests, case.matches) == other.route(
            case.loads, list(case.requests), None if case.matches is None else case.matches.copy()
        )


@pytest.mark.parametrize("name", ROUTERS)
@given(count=st.integers(1, 12), num_ranks=st.integers(1, 4))
def test_equal_requests_are_placed_in_the_order_they_came(name: str, count: int, num_ranks: int) -> None:
    routing = router(name).route(idle(num_ranks), [ask(f"r{i}", 8) for i in range(count)])

    assert [each.rank for each in routing.assignments] == [i % num_ranks for i in range(count)]


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=40), num_ranks=st.integers(1, 6))
def test_no_rank_is_above_the_mean_by_more_than_one_prompt(lengths: list[int], num_ranks: int) -> None:
    requests = [ask(f"r{i}", length) for i, length in enumerate(lengths)]

    routing = LeastTokens(fair_share_multiplier=num_ranks).route(idle(num_ranks), requests)

    of = {request.request_id: request.num_prompt_tokens for request in requests}
    tokens = [sum(of[name] for name in routing.of_rank(rank)) for rank in range(num_ranks)]
    assert max(tokens) <= sum(tokens) / num_ranks + max(lengths)


def test_settings_choose_the_router() -> None:
    kinds = {name: type(router(name)) for name in ROUTERS}

    assert kinds == dict(zip(ROUTERS, (LeastTokens, PrefixAffinity, ConversationAffinity), strict=True))


def test_settings_reach_the_router() -> None:
    loads = busy([0, 0], prefill=[0, 10**6])
    requests = [ask(f"r{i}", 5) for i in range(8)]

    even = router_of(RoutingConfig(fair_share_multiplier=1.0)).route(loads, requests)
    new = router_of(RoutingConfig(policy="conversation", new_conv_placement="prefix_affinity", load_balance_weight=0))
    matched = new.route(loads, [ask("r", 50)], np.array([[0], [49]], dtype=np.int64))

    assert len(even.of_rank(0)) == 4
    assert matched.of_rank(1) == ("r",)
