from tests.routing.loads import ask, busy, idle, int64
from tidegate.routing import PrefixAffinity


def test_prompt_goes_where_its_prefix_is() -> None:
    loads = busy([0, 1], prefill=[0, 100])

    assert PrefixAffinity().route(loads, [ask("r", 1000)], int64([[0], [0]])).of_rank(0) == ("r",)
    assert PrefixAffinity().route(loads, [ask("r", 1000)], int64([[0], [800]])).of_rank(1) == ("r",)


def test_load_outweighs_a_small_match_and_the_weight_says_when() -> None:
    loads, requests, matches = busy([0, 1], prefill=[0, 4000]), [ask("r", 1000)], int64([[0], [800]])

    assert PrefixAffinity(load_balance_weight=1.0).route(loads, requests, matches).of_rank(0) == ("r",)
    assert PrefixAffinity(load_balance_weight=0.5).route(loads, requests, matches).of_rank(1) == ("r",)


def test_match_below_the_threshold_does_not_count() -> None:
    router = PrefixAffinity(load_balance_weight=0.0)

    assert router.route(idle(2), [ask("r", 1000)], int64([[0], [100]])).of_rank(0) == ("r",)
    assert router.route(idle(2), [ask("r", 1000)], int64([[0], [101]])).of_rank(1) == ("r",)


def test_load_grows_by_what_is_not_cached() -> None:
    requests = [ask("a", 1000), ask("b", 1000), ask("c", 100)]
    matches = int64([[900, 0, 0], [0, 0, 0]])

    routing = PrefixAffinity().route(busy([0, 0], prefill=[1, 0]), requests, matches)

    assert routing.of_rank(1) == ("b",)
    assert routing.of_rank(0) == ("a", "c")


def test_prefix_on_a_full_rank_does_not_lose_the_request() -> None:
    loads, requests, matches = busy([0, 2], limits=[1, 2]), [ask("a", 100), ask("b", 100)], int64([[0, 0], [99, 99]])

    routing = PrefixAffinity().route(loads, requests, matches)

    assert routing.of_rank(0) == ("a",)
    assert routing.queued == ("b",)


def test_equal_prompts_spread_while_nothing_is_cached() -> None:
    routing = PrefixAffinity().route(idle(4), [ask(f"r{i}", 64) for i in range(8)])

    assert [len(routing.of_rank(rank)) for rank in range(4)] == [2, 2, 2, 2]


def test_equal_scores_are_exactly_equal() -> None:
    # 1 + 15/22 * 22 is 16, as is the other score, but less in floating point. The lower load must decide.
    loads = busy([1, 0], prefill=[15, 0])

    assert PrefixAffinity().route(loads, [ask("r", 22)], int64([[21], [6]])).of_rank(1) == ("r",)
