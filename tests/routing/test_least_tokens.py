import numpy as np
import pytest

from tests.routing.loads import ask, busy, idle, int64
from tidegate.base import ConfigError
from tidegate.routing import Assignment, LeastTokens, check_target


def test_longest_go_first_to_the_emptiest_rank() -> None:
    routing = LeastTokens().route(idle(2), [ask("a", 3), ask("b", 10), ask("c", 4), ask("d", 4)])

    assert routing.of_rank(0) == ("b",)
    assert routing.of_rank(1) == ("a", "c", "d")


def test_equal_ranks_differ_by_context_then_requests_then_number() -> None:
    router = LeastTokens()

    assert router.route(busy([1, 1], decode=[9, 8]), [ask("r", 1)]).of_rank(1) == ("r",)
    assert router.route(busy([2, 1], decode=[9, 9]), [ask("r", 1)]).of_rank(1) == ("r",)
    assert router.route(busy([1, 1], decode=[9, 9]), [ask("r", 1)]).of_rank(0) == ("r",)


def test_multiplier_of_one_gives_every_rank_equally_many() -> None:
    loads, requests = busy([0, 0], prefill=[0, 10**6]), [ask(f"r{i}", 5) for i in range(8)]

    assert len(LeastTokens(1.0).route(loads, requests).of_rank(0)) == 4
    assert len(LeastTokens(1.5).route(loads, requests).of_rank(0)) == 6
    assert len(LeastTokens(2.0).route(loads, requests).of_rank(0)) == 8


def test_share_yields_when_other_ranks_are_full() -> None:
    loads = busy([0, 0], limits=[8, 2])

    routing = LeastTokens(1.0).route(loads, [ask(f"r{i}", 5) for i in range(10)])

    assert (len(routing.of_rank(0)), len(routing.of_rank(1))) == (8, 2)


def test_first_come_find_a_seat_before_longer_ones_behind() -> None:
    routing = LeastTokens().route(idle(2, limit=1), [ask("a", 1), ask("b", 1), ask("long", 99)])

    assert routing.queued == ("long",)


def test_fully_cached_prompts_spread_too() -> None:
    routing = LeastTokens().route(idle(2), [ask(f"r{i}", 5) for i in range(6)], np.full((2, 6), 5, dtype=np.int64))

    assert len(routing.of_rank(0)) == len(routing.of_rank(1)) == 3


def test_strict_target_waits_for_its_rank_and_keeps_its_place() -> None:
    loads = busy([0, 1], limits=[3, 1])
    requests = [ask("s", 1, rank=1, strict=True), ask("a", 1), ask("t", 1, rank=1, strict=True)]

    routing = LeastTokens().route(loads, requests)

    assert routing.assignments == (Assignment("a", 0),)
    assert routing.queued == ("s", "t")


def test_strict_target_is_placed_before_others_take_its_seat() -> None:
    requests = [ask("long", 99), ask("s", 1, rank=0, strict=True)]

    assert LeastTokens().route(idle(2, limit=1), requests).of_rank(0) == ("s",)


def test_strict_ones_behind_do_not_take_the_seat_of_who_came_first() -> None:
    routing = LeastTokens().route(idle(1, limit=1), [ask("first", 1), ask("s", 1, rank=0, strict=True)])

    assert routing.of_rank(0) == ("first",)
    assert routing.queued == ("s",)


def test_relaxed_target_is_taken_with_room_and_left_without() -> None:
    requests = [ask("a", 1, rank=1), ask("b", 1, rank=1)]

    routing = LeastTokens().route(busy([0, 0], prefill=[0, 500], limits=[2, 1]), requests)

    assert routing.assignments == (Assignment("a", 1), Assignment("b", 0))


def test_nothing_is_lost_when_no_rank_has_room() -> None:
    routing = LeastTokens().route(busy([4, 2], limits=[2, 2]), [ask("a", 1), ask("b", 1, rank=0)])

    assert routing.assignments == ()
    assert routing.queued == ("a", "b")


@pytest.mark.parametrize("strict", [True, False])
def test_rank_that_does_not_exist_is_refused(strict: bool) -> None:
    request = ask("r", 1, rank=2, strict=strict)

    check_target(request, 3)
    with pytest.raises(ConfigError, match=r"attention_dp_rank=2 must be in \[0, 1\]"):
        check_target(request, 2)
    with pytest.raises(ConfigError, match="attention_dp_rank=2"):
        LeastTokens().route(idle(2), [request])


def test_matches_that_cannot_be_are_refused() -> None:
    requests = [ask("a", 3), ask("b", 3)]

    with pytest.raises(ConfigError, match=r"matches\[1, 0\]=4 must be in \[0, 3\]"):
        LeastTokens().route(idle(2), requests, int64([[0, 0], [4, 0]]))
    with pytest.raises(ConfigError, match=r"matches must be an int64 array of shape \[2, 2\]"):
        LeastTokens().route(idle(2), requests, int64([[0, 0]]))


def test_same_request_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a' is routed twice"):
        LeastTokens().route(idle(2), [ask("a", 3), ask("a", 4)])
