"""A prefill that balancing defers leaves the cache exactly as it was, fresh or with a chunk computed, however often."""

import pytest

from tidegate.request import Request
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import make_request

HELD = 11


def two_ranks(deferral: str, max_chunk_tokens: int = 1024, decoder_tokens: int = 33) -> GroupRun:
    """Each rank decodes one sequence; by default its next 30 tokens need no page."""
    run = GroupRun(
        2,
        stacked(full(), *[window(128)] * 3),
        pool_slots=(36, 36),
        tokens_per_block=32,
        max_seq_len=1024,
        max_batch_size=4,
        max_num_tokens=1024,
        headroom_blocks=0,
        enable_prefix_caching=False,
        deferral=deferral,
        attention_dp_config={"enable_balance": True, "timeout_iters": HELD + 1, "batching_wait_iters": 0},
        max_chunk_tokens=max_chunk_tokens,
    )
    for rank in range(2):
        run.submit(on(rank, f"decoder-{rank}", decoder_tokens, max_tokens=40))
    run.step_until(lambda: all(rank.load().active for rank in run.group.ranks))
    run.step()
    return run


def on(rank: int, name: str, length: int, **fields: object) -> Request:
    return make_request(name, length, attention_dp_rank=rank, attention_dp_relax=False, **fields)


@pytest.mark.parametrize("deferral", ["reserve_late", "revert"])
def test_a_fresh_prefill_of_965_tokens_is_deferred_without_a_trace(deferral: str) -> None:
    run = two_ranks(deferral)
    manager = run.group.ranks[0].manager
    free, requests = manager.quote().supply, manager.statistics().requests
    context = on(0, "context", 965, max_tokens=3)
    run.submit(context)
    run.step()  # it reaches its rank

    for _ in range(HELD):
        run.step()
        assert run.group.last is not None and run.group.last.held == (1, 0)
        assert manager.quote().supply == free
        assert manager.statistics().requests == requests
        assert sum(manager.statistics().reserved) == 0
        assert manager.quote().admit(manager.candidate([1] * 960), 960)
    run.step()
    assert run.group.last is not None and run.group.last.held == (0, 0)

    assert manager.statistics().requests == requests + 1
    assert run.run()["context"].tokens.tolist() == run.expected(context)


def test_hold_keeps_the_pages_and_loses_them_to_who_runs() -> None:
    run = two_ranks("hold")
    manager = run.group.ranks[0].manager
    context = on(0, "context", 965, max_tokens=3)
    run.submit(context)
    run.step()

    run.step()
    assert manager.statistics().reserved == (31, 5 + 9)  # of the window 5 pages, and 26 scratch blocks of 3 layers
    assert not manager.quote().admit(manager.candidate([1] * 960), 960)

    assert run.run()["context"].tokens.tolist() == run.expected(context)


@pytest.mark.parametrize("deferral", ["reserve_late", "revert", "hold"])
def test_a_prefill_with_a_chunk_computed_survives_deferral(deferral: str) -> None:
    run = two_ranks(deferral, max_chunk_tokens=512)
    rank = run.group.ranks[0]
    context = on(0, "context", 965, max_tokens=3)
    run.submit(context)
    run.step_until(lambda: 512 in rank.manager.history.tolist())
    free, capacity = rank.manager.quote().supply, rank.manager.capacity.tolist()

    for _ in range(10):
        rank.propose()
        rank.abandon()
        rank.manager.audit()
        assert rank.manager.quote().supply == free
        assert rank.manager.capacity.tolist() == capacity

    assert run.run()["context"].tokens.tolist() == run.expected(context)


def test_what_runs_takes_the_pages_of_a_kept_prefill_before_anybody_is_suspended() -> None:
    run = two_ranks("hold", decoder_tokens=58)
    rank = run.group.ranks[0]
    run.submit(on(0, "context", 960, max_tokens=3))
    run.step_until(lambda: sum(rank.manager.statistics().reserved) > 0)
    taken, row = rank.manager.quote().supply, int(rank.manager.history.argmax())

    # The decoder grows out of its block while the pool has nothing left but what the prefill keeps.
    hog = rank.manager.quote()
    assert hog.admit(rank.manager.candidate([1] * 32 * taken[0], access="none"), 32 * taken[0])
    with rank.manager.reserve(hog):
        assert rank.manager.quote().supply[0] == 0
        run.step_until(lambda: int(rank.manager.capacity[row]) > 64)
        assert sum(rank.manager.statistics().reserved) <= sum(hog.tally.needs)

    output = run.run()["decoder-0"]
    assert (output.num_suspensions, output.finish_reason) == (0, "length")
