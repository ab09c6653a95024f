from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.loads import MANY, ask, busy, int64
from tidegate.base import ConfigError
from tidegate.routing import Move, RankLoads, RoutingConfig, WaitingRequest, moves

CONFIG = RoutingConfig(move_margin_tokens=10)


def waits(*lengths_on: tuple[int, int]) -> list[WaitingRequest]:
    return [WaitingRequest(ask(f"r{i}", length), rank) for i, (length, rank) in enumerate(lengths_on)]


def loads_of(waiting: Sequence[WaitingRequest], num_ranks: int, limit: int = MANY) -> RankLoads:
    """Loads of ranks where nothing but ``waiting`` is."""
    on = [[each.request.num_prompt_tokens for each in waiting if each.rank == rank] for rank in range(num_ranks)]
    return busy([len(each) for each in on], prefill=[sum(each) for each in on], limits=[limit] * num_ranks)


def after(waiting: Sequence[WaitingRequest], found: Sequence[Move]) -> list[WaitingRequest]:
    target = {move.request_id: move.target for move in found}
    return [WaitingRequest(each.request, target.get(each.request.request_id, each.rank)) for each in waiting]


def test_who_waits_longest_leaves_the_fullest_rank_for_the_emptiest() -> None:
    waiting = waits((50, 0), (50, 0), (50, 1))

    assert moves(loads_of(waiting, 3), waiting, CONFIG) == (Move("r0", 0, 2),)


def test_small_gain_moves_nothing() -> None:
    waiting = waits((50, 0), (9, 0))

    assert moves(loads_of(waiting, 2), waiting, RoutingConfig(move_margin_tokens=60)) == ()
    assert moves(loads_of(waiting, 2), waiting, RoutingConfig(move_margin_tokens=9)) == (Move("r0", 0, 1),)


def test_rank_without_free_seats_receives_nothing() -> None:
    waiting = waits((50, 0), (50, 0))
    loads = busy([2, 1], prefill=[100, 0], limits=[2, 1])

    assert moves(loads, waiting, CONFIG) == ()


def test_rank_with_too_many_requests_gives_some_away_however_little_they_weigh() -> None:
    waiting = waits((1, 0), (1, 0), (1, 0))
    loads = busy([4, 1], prefill=[3, 500], limits=[2, 9])

    assert moves(loads, waiting, CONFIG) == (Move("r0", 0, 1), Move("r1", 0, 1))


def test_strict_requests_and_pinned_conversations_stay() -> None:
    waiting = [
        WaitingRequest(ask("strict", 50, rank=0, strict=True), 0),
        WaitingRequest(ask("turn", 50, conversation="c"), 0),
        WaitingRequest(ask("relaxed", 50, rank=0), 0),
    ]
    loads = loads_of(waiting, 2)
    pinned = RoutingConfig(policy="conversation", move_margin_tokens=10)

    assert moves(loads, waiting, pinned) == (Move("relaxed", 0, 1),)
    assert moves(loads, waiting, CONFIG) == (Move("turn", 0, 1),)


def test_cached_prefix_keeps_a_request_where_it_is_cheap() -> None:
    waiting = waits((50, 0), (50, 0))
    loads = busy([2, 0], prefill=[60, 0])

    assert moves(loads, waiting, CONFIG, int64([[40, 0], [0, 0]])) == (Move("r0", 0, 1),)
    assert moves(busy([2, 0], prefill=[55, 0]), waiting, CONFIG, int64([[45, 0], [0, 0]])) == ()
    assert moves(busy([2, 0], prefill=[55, 0]), waiting, CONFIG, int64([[45, 0], [0, 30]])) == (Move("r1", 0, 1),)


def test_moves_are_bounded() -> None:
    waiting = waits(*[(50, 0)] * 20)

    assert len(moves(loads_of(waiting, 4), waiting, RoutingConfig(move_margin_tokens=10, max_moves=3))) == 3
    assert moves(loads_of(waiting, 4), waiting, RoutingConfig(max_moves=0)) == ()


def test_rank_that_does_not_exist_is_refused() -> None:
    waiting = waits((5, 2))

    with pytest.raises(ConfigError, match=r"rank=2 must be an integer in \[0, 1\]"):
        moves(busy([1, 1]), waiting, CONFIG)


@given(
    where=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=14),
    limit=st.integers(1, 8),
    margin=st.integers(1, 20),
)
def test_no_arrangement_comes_twice(where: list[tuple[int, int]], limit: int, margin: int) -> None:
    config = RoutingConfig(move_margin_tokens=margin, max_moves=2)
    waiting = waits(*where)
    seen = {tuple(each.rank for each in waiting)}
    while found := moves(loads_of(waiting, 4, limit), waiting, config):
        waiting = after(waiting, found)
        ranks = tuple(each.rank for each in waiting)
        assert ranks not in seen
        seen.add(ranks)


@given(gap=st.integers(-60, 60), length=st.integers(1, 60), margin=st.integers(1, 20))
def test_a_moved_request_does_not_come_straight_back(gap: int, length: int, margin: int) -> None:
    config = RoutingConfig(move_margin_tokens=margin)
    waiting = waits((length, 0))
    one, other = 100 + gap, 100

    found = moves(busy([2, 1], prefill=[one + length, other]), waiting, config)
    back = moves(busy([1, 2], prefill=[one, other + length]), after(waiting, found), config)

    assert not (found and back)


@given(where=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=14), limit=st.integers(0, 8))
def test_moves_respect_seats_and_name_each_request_once(where: list[tuple[int, int]], limit: int) -> None:
    waiting = waits(*where)
    before = loads_of(waiting, 4, limit)

    found = moves(before, waiting, CONFIG)

    now = loads_of(after(waiting, found), 4, limit)
    assert len({move.request_id for move in found}) == len(found)
    assert ((now.num_live <= limit) | (now.num_live <= before.num_live)).all()
