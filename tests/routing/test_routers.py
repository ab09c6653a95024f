from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.base import ConfigError
from tidegate.request import Request
from tidegate.routing import (
    ConversationAffinity,
    LeastTokens,
    PrefixAffinity,
    RankLoads,
    Router,
    RoutingConfig,
    check_target,
    router_of,
)
from tidegate.testing.serving import make_request

RANKS = 4


def idle(seats: int = 8, ranks: int = RANKS) -> RankLoads:
    zeros = np.zeros(ranks, np.int64)
    return RankLoads(zeros, zeros, zeros, zeros, np.full(ranks, seats))


def request(index: int, length: int = 10, **fields: object) -> Request:
    return make_request(f"r{index}", [1] * length, **fields)


def homes(router: Router, loads: RankLoads, requests: list[Request]) -> dict[str, int]:
    return {a.request_id: a.rank for a in router.route(loads, requests).assignments}


def test_strict_targets_come_first_and_go_nowhere_else() -> None:
    requests = [request(i, 100) for i in range(8)]
    requests += [request(8 + i, 1, attention_dp_rank=2, attention_dp_relax=False) for i in range(3)]

    routing = LeastTokens().route(idle(seats=2), requests)

    found = {a.request_id: a.rank for a in routing.assignments}
    assert (found["r8"], found["r9"]) == (2, 2)
    assert "r10" in routing.queued
    assert len(found) == 8


def test_a_wish_is_met_where_there_is_room_and_else_given_up() -> None:
    wishes = [request(i, attention_dp_rank=1) for i in range(4)]

    found = homes(LeastTokens(), idle(seats=2), wishes)

    assert sorted(found.values()).count(1) == 2
    assert len(found) == 4


def test_nobody_is_assigned_when_every_seat_is_taken() -> None:
    loads = RankLoads(*[np.full(RANKS, 8)] * 5)
    for router in (LeastTokens(), PrefixAffinity(RoutingConfig()), ConversationAffinity(8)):
        matches = np.zeros((RANKS, 2), np.int64) if router.needs_matches else None
        routing = router.route(loads, [request(0), request(1)], matches)
        assert routing.queued == ("r0", "r1")


def test_a_conversation_stays_on_the_rank_of_its_first_turn() -> None:
    router = ConversationAffinity(max_sessions=100)
    first = homes(router, idle(), [request(i, 100 - i, conversation_id=f"c{i}") for i in range(8)])

    second = homes(router, idle(), [request(i, 1, conversation_id=f"c{i}") for i in reversed(range(8))])

    assert first == second


def test_turns_of_a_full_rank_stay_queued() -> None:
    router = ConversationAffinity(max_sessions=100)
    home = homes(router, idle(), [request(0, conversation_id="c")])["r0"]
    loads = idle(seats=1)
    busy = np.zeros(RANKS, np.int64)
    busy[home] = 1

    full = RankLoads(busy, loads.num_retiring, loads.prefill_tokens, loads.decode_tokens, loads.max_requests)
    routing = router.route(full, [request(1, conversation_id="c"), request(2)])

    assert routing.queued == ("r1",)


def test_several_first_turns_of_one_conversation_do_not_part() -> None:
    router = ConversationAffinity(max_sessions=100)
    turns = [request(i, conversation_id="c") for i in range(3)]

    first = router.route(idle(), turns)
    second = router.route(idle(), [turn for turn in turns if turn.request_id in first.queued])

    assert len(first.assignments) == 1
    assert {a.rank for a in (*first.assignments, *second.assignments)} == {first.assignments[0].rank}


def test_the_map_of_conversations_is_bounded() -> None:
    router = ConversationAffinity(max_sessions=3)
    for i in range(50):
        router.route(idle(), [request(i, conversation_id=f"c{i}")])
    assert router.num_sessions == 3


def test_a_short_match_does_not_attract() -> None:
    router = PrefixAffinity(RoutingConfig(match_rate_threshold=0.5))
    loads = RankLoads(*[np.array(v) for v in ([1, 0], [0, 0], [500, 0], [0, 0], [8, 8])])

    assert router.route(loads, [request(0, 100)], np.array([[40], [0]])).assignments[0].rank == 1
    assert router.route(loads, [request(0, 100)], np.array([[95], [0]])).assignments[0].rank == 1
    loads = RankLoads(*[np.array(v) for v in ([1, 1], [0, 0], [50, 50], [0, 0], [8, 8])])
    assert router.route(loads, [request(0, 100)], np.array([[0], [95]])).assignments[0].rank == 1


@pytest.mark.parametrize("target", [4, 100])
def test_a_target_that_is_no_rank_is_refused(target: int) -> None:
    with pytest.raises(ConfigError, match=rf"attention_dp_rank={target} must be in \[0, 3\]"):
        check_target(request(0, attention_dp_rank=target), RANKS)
    check_target(request(0, attention_dp_rank=3), RANKS)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"policy": "random"}, "policy"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"fair_share_multiplier": 0.5}, "fair_share_multiplier"),
        ({"load_balance_weight": "x"}, "load_balance_weight"),
        ({"weight": 1}, "weight"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        RoutingConfig.from_mapping(settings)


def test_the_settings_choose_the_router() -> None:
    kinds = {name: type(router_of(RoutingConfig(policy=name))) for name in ("least_tokens", "prefix_affinity")}
    assert kinds == {"least_tokens": LeastTokens, "prefix_affinity": PrefixAffinity}
    assert isinstance(router_of(RoutingConfig(policy="conversation")), ConversationAffinity)


ranks = st.integers(1, 6)


@given(st.data())
def test_every_request_is_assigned_once_or_queued_and_no_cap_is_passed(data: st.DataObject) -> None:
    n = data.draw(ranks)
    columns = [np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))) for _ in range(5)]
    loads = RankLoads(columns[0], columns[1], columns[2] * 100, columns[3], columns[4])
    requests = []
    for i in range(data.draw(st.integers(0, 20))):
        target = data.draw(st.none() | st.integers(0, n - 1))
        relax = data.draw(st.booleans())
        name = data.draw(st.none() | st.sampled_from("abc"))
        length = data.draw(st.integers(1, 50))
        requests.append(request(i, length, attention_dp_rank=target, attention_dp_relax=relax, conversation_id=name))
    matches = np.array([[data.draw(st.integers(0, r.num_prompt_tokens - 1)) for r in requests] for _ in range(n)])
    matches = matches.reshape(n, len(requests)).astype(np.int64)

    for make in (LeastTokens, lambda: PrefixAffinity(RoutingConfig()), lambda: ConversationAffinity(2)):
        routing, again = (make().route(loads, requests, matches) for _ in range(2))
        assert routing == again
        placed = [a.request_id for a in routing.assignments]
        assert sorted([*placed, *routing.queued]) == sorted(r.request_id for r in requests)
        live = loads.num_live.copy()
        by_id = {r.request_id: r for r in requests}
        for assignment in routing.assignments:
            live[assignment.rank] += 1
            target = by_id[assignment.request_id].attention_dp_rank
            assert target is None or by_id[assignment.request_id].attention_dp_relax or assignment.rank == target
        assert (live <= np.maximum(loads.max_requests, loads.num_live)).all()
