"""Every way in which a step can die, on every rank, in random states.

Before dispatch each counter, cursor, page, scratch slot, cached page and victim is as it was. After it only the
requests of the failed step end. Either way everybody else's output is what it would have been.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod

import pytest

from tests.runtime.group.state_image import cache_image, differences, scheduler_image
from tidegate.base import Int64Array, RankError
from tidegate.cache import JointReservation, Reservation
from tidegate.request import FinishReason, Request
from tidegate.runtime import ContextAllocator
from tidegate.runtime.group import Rank
from tidegate.scheduling import Decision
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import make_request

NUM_RANKS = 3
DEFERRALS = ("reserve_late", "revert", "hold")
SEEDS = range(3)


class Dies(Exception):
    """What the tests throw."""


def random_run(
    seed: int, deferral: str, *, overlap: bool = False, steps: int | None = None
) -> tuple[GroupRun, list[Request]]:
    """Serve random requests for a random while: shared heads, tight pools, suspensions, cancellations."""
    print(f"seed={seed} deferral={deferral} overlap={overlap}")
    rng = random.Random(f"{seed} {deferral} {overlap}")
    run = GroupRun(
        NUM_RANKS,
        stacked(full(), window(6), window(6)),
        pool_slots=(rng.choice((30, 44)), rng.choice((16, 24))),
        tokens_per_block=4,
        max_seq_len=64,
        max_batch_size=4,
        max_num_tokens=rng.choice((16, 32)),
        max_partial_prefills=2,
        headroom_blocks=0,
        overlap=overlap,
        deferral=deferral,
        attention_dp_config={"enable_balance": True, "timeout_iters": 4, "batching_wait_iters": 2},
    )
    requests = []
    for i in range(26):
        shared = [7] * rng.choice((0, 4, 9))
        prompt = shared + [rng.randrange(29) for _ in range(rng.randint(1, 40 - len(shared)))]
        requests.append(make_request(f"r{i}", prompt, max_tokens=rng.randint(1, 20)))
    for request in requests[:14]:
        run.submit(request)
    for i in range(rng.randint(2, 14) if steps is None else steps):
        run.step()
        if i % 3 == 2:
            run.group.abort(f"r{rng.randrange(14)}")
    for request in requests[14:]:
        run.submit(request)
    run.step()
    return run, requests


def finish(run: GroupRun, requests: list[Request]) -> None:
    """Run to the end; whoever was not cancelled or hit by a failure has the right tokens."""
    outputs = run.run()
    assert outputs.keys() == {request.request_id for request in requests}
    for request in requests:
        output, expected = outputs[request.request_id], run.expected(request)
        if output.finish_reason in (FinishReason.ABORTED, FinishReason.ERROR):
            assert output.tokens.tolist() == expected[: output.num_tokens]
        else:
            assert output.tokens.tolist() == expected


def image(rank: Rank, requests: list[Request]) -> dict[str, object]:
    return cache_image(rank.manager, [r.prompt for r in requests]) | scheduler_image(rank.scheduler)


# ---- before dispatch: what kills the step, given the group

Killer = Callable[[GroupRun, pytest.MonkeyPatch], None]


def held_back(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    for rank in run.group.ranks:
        rank.propose()
        rank.restrict(Decision(hold=True))
        rank.abandon()


def cut_down(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    for rank in run.group.ranks:
        rank.propose()
        rank.restrict(Decision(max_tokens=5))
        rank.abandon()


def vetoed(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    for rank in run.group.ranks:
        rank.propose()
    for rank in run.group.ranks:
        rank.abandon()


def rank_lost(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    def lost(rows: Int64Array) -> Int64Array:
        raise RankError("rank 2 died", rank=2)

    with patch.context() as scope:
        scope.setattr(run.group._exchange, "gather", lost)
        with pytest.raises(RankError, match="rank 2"):
            run.group.step()


def balance_fails(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    with patch.context() as scope, pytest.raises(Dies):
        scope.setattr(type(run.group._balancer), "decide", _raise)
        run.group.step()


def second_cache_is_full(run: GroupRun, patch: pytest.MonkeyPatch) -> None:
    for rank in run.group.ranks:
        other = run.group.ranks[0].manager if rank is not run.group.ranks[0] else run.group.ranks[1].manager
        with _exhausted(other):
            allocator = ContextAllocator((rank.manager, other))
            request = make_request("draft", [25] * 33)
            allocator.prepare_context(request)
            assert not allocator.resize_context(request, 33)
            allocator.free_resources(request)


BEFORE: dict[str, Killer] = {
    "held by balance": held_back,
    "cut by balance": cut_down,
    "vetoed": vetoed,
    "rank lost in the exchange": rank_lost,
    "balance policy raises": balance_fails,
    "second cache is full": second_cache_is_full,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deferral", DEFERRALS)
@pytest.mark.parametrize("way", BEFORE)
def test_before_dispatch_nothing_has_changed_on_any_rank(
    way: str, deferral: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, requests = random_run(seed, deferral)
    release_kept(run)
    before = [image(rank, requests) for rank in run.group.ranks]

    BEFORE[way](run, monkeypatch)

    release_kept(run)  # with `hold`, pages of what was held back stay with it until they are given back
    for rank, was in zip(run.group.ranks, before, strict=True):
        rank.manager.audit()
        assert differences(was, image(rank, requests)) == []
    finish(run, requests)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deferral", DEFERRALS)
@pytest.mark.parametrize("place", ["reserve", "dispatch"])
@pytest.mark.parametrize("victim", range(NUM_RANKS))
def test_a_rank_that_fails_before_dispatch_keeps_its_state(
    victim: int, place: str, deferral: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, requests = random_run(seed, deferral)
    rank = run.group.ranks[victim]
    before = image(rank, requests)
    with monkeypatch.context() as patch:
        if place == "reserve":
            patch.setattr(rank.manager, "reserve", _raise)
        else:
            for kind in (Reservation, JointReservation):
                patch.setattr(kind, "dispatch", partialmethod(_raise_for, rank.manager, kind.dispatch))
        for _ in range(40):
            release_kept(run)
            before = image(rank, requests)
            try:
                run.group.step()
            except Dies:
                break
        else:
            pytest.fail("the rank had nothing to run")

    release_kept(run)
    assert differences(before, image(rank, requests)) == []
    for other in run.group.ranks:
        other.manager.audit()
    finish(run, requests)


# ---- after dispatch


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deferral", DEFERRALS)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("victim", range(NUM_RANKS))
def test_a_failing_engine_ends_the_requests_of_its_step_only(
    victim: int, overlap: bool, deferral: str, seed: int
) -> None:
    run, requests = random_run(seed, deferral, overlap=overlap)
    ended_before = set(run.outputs)

    run.engines[victim].fail_next()
    finish(run, requests)

    failed = {i for i, output in run.outputs.items() if output.finish_reason is FinishReason.ERROR}
    assert not failed & ended_before
    assert len(failed) <= 4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deferral", DEFERRALS)
@pytest.mark.parametrize("overlap", [False, True])
def test_cancelling_everything_in_flight_returns_every_page_once(overlap: bool, deferral: str, seed: int) -> None:
    run, requests = random_run(seed, deferral, overlap=overlap)

    for request in requests:
        run.group.abort(request.request_id)
    finish(run, requests)

    assert any(output.finish_reason is FinishReason.ABORTED for output in run.outputs.values())


def release_kept(run: GroupRun) -> None:
    for rank in run.group.ranks:
        rank.release_kept()


@contextmanager
def _exhausted(manager):  # type: ignore[no-untyped-def]  # a cache
    """Reserve all that a cache still has, for a while."""
    reservations: list[Reservation] = []
    while True:
        quote = manager.quote()
        if not quote.admit(manager.candidate([26, len(reservations)], access="none"), 2):
            break
        reservations.append(manager.reserve(quote))
    try:
        yield
    finally:
        for reservation in reversed(reservations):
            reservation.rollback()


def _raise(*_: object) -> Iterator[None]:
    raise Dies


def _raise_for(reservation, manager, dispatch):  # type: ignore[no-untyped-def]  # stands in for a method
    part = reservation.parts[0] if isinstance(reservation, JointReservation) else reservation
    if part._host is manager._core:
        raise Dies
    return dispatch(reservation)
