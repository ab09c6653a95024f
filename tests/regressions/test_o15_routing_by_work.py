"""O15: routing counts work, not requests; a retiring request frees its seat but still counts where others go."""

import numpy as np

from tests.routing.loads import ask, busy, idle, int64
from tidegate.routing import LeastTokens, PrefixAffinity


def test_next_prompt_avoids_the_rank_with_one_giant() -> None:
    loads = busy([1, 2], prefill=[10_000, 2_000])

    assert LeastTokens().route(loads, [ask("next", 500)]).of_rank(1) == ("next",)
    assert PrefixAffinity().route(loads, [ask("next", 500)]).of_rank(1) == ("next",)


def test_cached_tokens_are_no_load() -> None:
    first = LeastTokens().route(
        idle(2, limit=2),
        [ask("giant", 160_000, rank=0), ask("a", 1_000, rank=1), ask("b", 1_000, rank=1)],
        int64([[159_000, 0, 0], [0, 0, 0]]),
    )
    loads = busy([1, 2], prefill=[1_000, 2_000])

    assert first.of_rank(0) == ("giant",)
    assert LeastTokens().route(loads, [ask("next", 500)]).of_rank(0) == ("next",)


def test_cached_giant_leaves_room_for_the_next_of_the_same_call() -> None:
    requests = [ask("giant", 160_000, rank=0), ask("a", 1_000, rank=1), ask("b", 1_000, rank=1), ask("next", 500)]

    routing = LeastTokens().route(idle(2), requests, int64([[159_000, 0, 0, 0], [0, 0, 0, 0]]))

    assert routing.of_rank(0) == ("giant", "next")


def test_mixed_lengths_are_spread_evenly() -> None:
    requests = [ask(f"r{i}", 200 if i % 2 == 0 else 8_000) for i in range(64)]
    lengths = {request.request_id: request.num_prompt_tokens for request in requests}

    routing = LeastTokens().route(idle(4), requests)

    tokens = np.array([sum(lengths[name] for name in routing.of_rank(rank)) for rank in range(4)])
    assert tokens.max() / tokens.mean() <= 1.25
    assert routing.queued == ()


def test_retiring_request_frees_its_seat_but_counts_for_placement() -> None:
    loads = busy([1, 1], retiring=[1, 0], limits=[2, 2])

    one = LeastTokens().route(loads, [ask("one", 10)])
    three = LeastTokens().route(loads, [ask(f"r{i}", 10) for i in range(3)])

    assert one.of_rank(1) == ("one",)
    assert (len(three.of_rank(0)), len(three.of_rank(1)), three.queued) == (1, 1, ("r2",))
