"""A request can be ended in any phase, also in flight; its pages come back exactly once."""

import pytest

from tidegate.base import Closed
from tidegate.request import FinishReason
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import ServingRun, make_request


def run_of(*, overlap: bool, pages: int = 30) -> ServingRun:
    return ServingRun(
        stacked(full(), window(6)),
        pool_slots=(pages,),
        tokens_per_block=4,
        max_seq_len=64,
        max_num_tokens=8,
        max_batch_size=3,
        headroom_blocks=0,
        overlap=overlap,
    )


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps_before", range(12))
def test_abort_after_any_number_of_steps(steps_before: int, overlap: bool) -> None:
    run = run_of(overlap=overlap)
    victim = make_request("victim", 21, max_tokens=5)  # three chunks, then decodes
    other = make_request("other", 6, max_tokens=9)
    run.submit(victim, stream=True)
    run.submit(other)
    for _ in range(steps_before):
        run.step()

    was_there = "victim" not in run.outputs
    assert run.session.abort("victim") == was_there
    assert not run.session.abort("victim")
    outputs = run.run()

    tokens = outputs["victim"].tokens.tolist()
    assert outputs["victim"].finish_reason is (FinishReason.ABORTED if was_there else FinishReason.LENGTH)
    assert tokens == run.expected(victim)[: len(tokens)] == run.deltas["victim"]
    assert outputs["other"].tokens.tolist() == run.expected(other)


@pytest.mark.parametrize("overlap", [False, True])
def test_abort_of_all_at_once(overlap: bool) -> None:
    run = run_of(overlap=overlap)
    for number in range(6):
        run.submit(make_request(f"r{number}", 9, max_tokens=9))
    for _ in range(5):
        run.step()

    for number in range(6):
        run.session.abort(f"r{number}")
    outputs = run.run()

    assert len(outputs) == 6


@pytest.mark.parametrize("overlap", [False, True])
def test_abort_of_a_suspended_request_returns_what_it_produced(overlap: bool) -> None:
    run = ServingRun(
        stacked(full()),
        pool_slots=(8,),
        tokens_per_block=4,
        max_seq_len=64,
        max_num_tokens=32,
        max_batch_size=3,
        headroom_blocks=0,
        overlap=overlap,
    )
    requests = [make_request(f"r{i}", 7, max_tokens=16) for i in range(3)]
    for request in requests:
        run.submit(request)
    while not run.session.statistics().suspended:
        run.step()

    run.session.abort("r2")
    outputs = run.run()

    assert outputs["r2"].num_suspensions == 1
    assert 0 < outputs["r2"].num_tokens < 16
    assert outputs["r2"].tokens.tolist() == run.expected(requests[2])[: outputs["r2"].num_tokens]


def test_abort_of_an_unknown_request_is_no_error() -> None:
    assert not run_of(overlap=False).session.abort("nobody")


@pytest.mark.parametrize("overlap", [False, True])
def test_close_ends_everything_and_is_idempotent(overlap: bool) -> None:
    run = run_of(overlap=overlap)
    for number in range(4):
        run.submit(make_request(f"r{number}", 9, max_tokens=9))
    for _ in range(3):
        run.step()

    run.session.close()
    run.session.close()

    run.manager.audit()
    run.check_idle()
    with pytest.raises(Closed):
        run.session.step()
    with pytest.raises(Closed):
        run.submit(make_request("late", 3))
