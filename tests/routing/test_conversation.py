import pytest

from tests.routing.loads import ask, busy, idle
from tidegate.base import ConfigError
from tidegate.routing import ConversationAffinity, LeastTokens


def affinity(max_sessions: int = 8) -> ConversationAffinity:
    return ConversationAffinity(LeastTokens(), max_sessions)


def test_later_turns_follow_the_first() -> None:
    router = affinity()
    router.route(busy([0, 0], prefill=[9, 0]), [ask("turn1", 5, conversation="c")])

    routing = router.route(busy([0, 0], prefill=[0, 10**6]), [ask("turn2", 5, conversation="c"), ask("other", 5)])

    assert routing.of_rank(1) == ("turn2",)
    assert routing.of_rank(0) == ("other",)


def test_turns_that_come_together_stay_together() -> None:
    routing = affinity().route(idle(4), [ask(f"t{i}", 50, conversation="c") for i in range(3)])

    assert routing.of_rank(0) == ("t0", "t1", "t2")


def test_full_rank_moves_the_turn_and_its_pin() -> None:
    router = affinity()
    router.route(idle(2), [ask("turn1", 5, conversation="c")])

    moved = router.route(busy([1, 0], limits=[1, 1]), [ask("turn2", 5, conversation="c")])
    after = router.route(idle(2), [ask("turn3", 5, conversation="c")])

    assert moved.of_rank(1) == ("turn2",)
    assert after.of_rank(1) == ("turn3",)


def test_turns_that_overflow_a_rank_move_one_by_one() -> None:
    router = affinity()

    routing = router.route(idle(3, limit=2), [ask(f"t{i}", 5, conversation="c") for i in range(7)])

    assert [len(routing.of_rank(rank)) for rank in range(3)] == [2, 2, 2]
    assert routing.queued == ("t6",)
    assert router.rank_of("c") == 2


def test_named_target_takes_the_conversation_along() -> None:
    router = affinity()
    router.route(idle(2), [ask("turn1", 5, conversation="c")])

    routing = router.route(
        idle(2), [ask("turn2", 5, conversation="c"), ask("turn3", 5, rank=1, strict=True, conversation="c")]
    )

    assert routing.of_rank(1) == ("turn2", "turn3")


def test_conversation_used_longest_ago_is_forgotten() -> None:
    router = affinity(max_sessions=2)
    for name in ("a", "b", "a", "c"):
        router.route(idle(2), [ask(f"turn of {name}", 5, conversation=name)])

    assert router.rank_of("b") is None
    assert router.rank_of("a") is not None
    assert router.rank_of("c") is not None


def test_queued_turn_leaves_no_pin() -> None:
    router = affinity()

    routing = router.route(idle(2, limit=0), [ask("turn1", 5, conversation="c")])

    assert routing.queued == ("turn1",)
    assert router.rank_of("c") is None


def test_refused_call_changes_nothing() -> None:
    router = affinity()

    with pytest.raises(ConfigError):
        router.route(idle(2), [ask("a", 5, conversation="c"), ask("b", 5, rank=7)])

    assert router.rank_of("c") is None


def test_pin_to_a_rank_that_is_gone_is_no_pin() -> None:
    router = affinity()
    router.route(busy([0, 0], prefill=[9, 0]), [ask("turn1", 5, conversation="c")])

    assert router.route(idle(1), [ask("turn2", 5, conversation="c")]).of_rank(0) == ("turn2",)
