"""Every way a step can die: before dispatch nothing has changed, after it its requests end and the rest goes on."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tidegate.base import EngineError
from tidegate.engine import StepInput
from tidegate.request import FinishReason
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import ServingRun, make_request


class Breaks(Exception):
    """What the tests throw."""


def run_of(*, overlap: bool = False, pages: int = 24, **settings: object) -> ServingRun:
    values: dict[str, Any] = {"max_num_tokens": 16, "max_batch_size": 4, "headroom_blocks": 0, **settings}
    return ServingRun(
        stacked(full(), window(6)), pool_slots=(pages,), tokens_per_block=4, max_seq_len=64, overlap=overlap, **values
    )


def snapshot(run: ServingRun) -> tuple[object, ...]:
    manager = run.manager
    return (
        run.session.statistics(),
        manager.quote().supply,
        manager.num_open.tolist(),
        dataclasses.replace(manager.statistics(), pools=(), groups=()),  # those also keep peaks
        [(group.owned, group.scratch) for group in manager.statistics().groups],
        [(pool.free, pool.evictable, pool.in_use) for pool in manager.statistics().pools],
    )


@pytest.mark.parametrize("place", ["reserve", "dispatch"])
@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_before_dispatch_nothing_has_changed(place: str, steps_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of()
    requests = [make_request(f"r{i}", 9, max_tokens=6) for i in range(4)]
    for request in requests:
        run.submit(request)
    for _ in range(steps_before):
        run.step()
    before = snapshot(run)
    reserve = run.manager.reserve

    def broken(quote):  # type: ignore[no-untyped-def]  # stands in for a method
        if place == "reserve":
            raise Breaks
        reservation = reserve(quote)
        monkeypatch.setattr(type(reservation), "dispatch", _raise)
        return reservation

    with monkeypatch.context() as patch:
        patch.setattr(run.manager, "reserve", broken)
        with pytest.raises(Breaks):
            run.session.step()
    monkeypatch.undo()

    run.manager.audit()
    assert snapshot(run) == before
    outputs = run.run()
    assert all(outputs[r.request_id].tokens.tolist() == run.expected(r) for r in requests)


def _raise(self: object) -> None:
    raise Breaks


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps_before", range(7))
def test_engine_failure_ends_the_requests_of_its_step_only(steps_before: int, overlap: bool) -> None:
    run = run_of(overlap=overlap)
    requests = [make_request(f"r{i}", 9 + i, max_tokens=6) for i in range(6)]
    for request in requests:
        run.submit(request)
    for _ in range(steps_before):
        run.step()

    run.engine.fail_next()
    outputs = run.run()

    failed = [output for output in outputs.values() if output.finish_reason is FinishReason.ERROR]
    assert 1 <= len(failed) < 6
    assert all("failed as told" in (output.error or "") for output in failed)
    for request in requests:
        tokens, expected = outputs[request.request_id].tokens.tolist(), run.expected(request)
        if outputs[request.request_id] in failed:
            assert tokens == expected[: len(tokens)]
        else:
            assert tokens == expected


@pytest.mark.parametrize("overlap", [False, True])
def test_failure_while_others_are_suspended(overlap: bool) -> None:
    run = run_of(overlap=overlap, pages=12, max_num_tokens=64)
    requests = [make_request(f"r{i}", 7, max_tokens=14) for i in range(4)]
    for request in requests:
        run.submit(request)
    while not run.session.statistics().suspended:
        run.step()

    run.engine.fail_next()
    outputs = run.run()

    reasons = [output.finish_reason for output in outputs.values()]
    assert FinishReason.ERROR in reasons
    assert FinishReason.LENGTH in reasons


@pytest.mark.parametrize("overlap", [False, True])
def test_logits_that_are_no_numbers_end_the_step(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(overlap=overlap)
    run.submit(make_request("r", 5))
    forward = run.engine.forward

    def poisoned(step: StepInput) -> np.ndarray:
        return np.full_like(forward(step), np.nan)

    with monkeypatch.context() as patch:
        patch.setattr(run.engine, "forward", poisoned)
        output = run.run()["r"]

    assert output.finish_reason is FinishReason.ERROR
    assert EngineError.__name__ in (output.error or "")


@pytest.mark.parametrize("overlap", [False, True])
def test_failing_copy_after_dispatch_ends_the_step(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(overlap=overlap)
    run.submit(make_request("r", 5))

    def broken(copies: object) -> None:
        raise Breaks("copy")

    with monkeypatch.context() as patch:
        patch.setattr(run.manager, "copy_pages", broken)
        output = run.run()["r"]

    assert output.finish_reason is FinishReason.ERROR
    assert output.error == "Breaks: copy"
    run.submit(make_request("next", 5))
    assert run.run()["next"].finish_reason is FinishReason.LENGTH


def test_interrupt_leaves_a_loop_that_can_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of()
    run.submit(make_request("r", 5))
    run.submit(make_request("late", 40, max_tokens=3))

    def interrupted(step: StepInput) -> np.ndarray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.engine, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.session.step()

    run.manager.audit()
    run.submit(make_request("next", 5))
    assert run.run()["next"].finish_reason is FinishReason.LENGTH
