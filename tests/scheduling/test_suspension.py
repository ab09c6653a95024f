"""Who gives way when pages run out, and that everybody gets to the end."""

import numpy as np
import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason, Milestones, RunningSequences, SequenceStart
from tidegate.scheduling import SchedulerConfig
from tidegate.scheduling.policy import has_progressed
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request


def run_of(pages: int, *, block: int = 4, rows: int = 8, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": rows, "headroom_blocks": 0, **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full()), max_sequences=rows, max_seq_len=512, tokens_per_block=block, pool_slots=(pages,)
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def row_of(run: PlanningRun, request_id: str) -> int:
    sequences = run.scheduler.sequences
    return next(int(row) for row in sequences.active().tolist() if sequences.request(row).request_id == request_id)


def test_victim_of_lowest_priority_is_withdrawn_from_the_step() -> None:
    run = run_of(7)
    run.submit(make_request("low", 10, priority=5, max_tokens=12))
    run.submit(make_request("middle", 2, priority=3, max_tokens=6))
    run.submit(make_request("urgent", 11, priority=0, max_tokens=12))
    run.step()  # 11, 3 and 12 tokens known: 3, 1 and 3 pages, none free
    run.step()
    low = row_of(run, "low")

    plan = run.step()  # urgent needs a fourth page

    assert plan.victims == (low,)
    assert sorted(plan.decodes.tolist()) == sorted([row_of(run, "middle"), row_of(run, "urgent")])
    assert plan.num_tokens == 2
    assert run.run()["low"].num_tokens == 12


def test_most_recently_admitted_gives_way_among_equals() -> None:
    run = run_of(6)
    for name in "abc":
        run.submit(make_request(name, 7, max_tokens=10))
    run.step()
    run.step()
    newest = row_of(run, "c")

    assert run.step().victims == (newest,)


def test_only_as_many_are_suspended_as_it_takes() -> None:
    run = run_of(8)
    for name in "abcd":
        run.submit(make_request(name, 7, max_tokens=10))
    run.step()
    run.step()

    plan = run.step()  # four pages more, two pages per victim

    assert len(plan.victims) == 2
    assert len(plan.decodes) == 2


def test_suspended_request_keeps_its_place_and_its_tokens() -> None:
    run = run_of(8)
    run.submit(make_request("a", 7, max_tokens=12))
    run.submit(make_request("b", 7, max_tokens=12))
    run.submit(make_request("c", 7, max_tokens=2))
    while not run.step().victims:
        run.submit(make_request(f"late{len(run.plans)}", 3, max_tokens=2))
    outputs = run.run()

    assert outputs["b"].num_tokens == 12
    assert outputs["b"].timing.first_token_s == outputs["a"].timing.first_token_s
    assert run.scheduler.statistics().suspended == run.scheduler.statistics().resumed > 0


def test_none_is_suspended_again_before_it_has_produced_a_token() -> None:
    run = run_of(20, rows=8)
    for number in range(8):
        run.submit(make_request(f"r{number}", 9, max_tokens=24))
    sequences = run.scheduler.sequences
    for _ in range(500):
        if not run.scheduler.has_work:
            break
        plan = run.scheduler.plan()
        victims = np.array(plan.victims, dtype=np.int64)
        back = victims[sequences.num_suspensions[victims] > 0]
        assert (sequences.num_tokens[back] > sequences.target[back]).all()
        run.step()

    assert len(run.outputs) == 8
    assert run.scheduler.statistics().suspended > 4


def test_last_runner_is_not_suspended_but_ends_with_capacity() -> None:
    run = run_of(8)
    run.submit(make_request("a", 20, max_tokens=100, run_to_capacity=True))
    while run.scheduler.has_work:
        run.step()

    output = run.outputs["a"]
    assert output.finish_reason is FinishReason.CAPACITY
    assert output.num_tokens == 13  # 32 positions are full: 20 of the prompt and 12 of the output
    assert run.scheduler.statistics().suspended == 0
    run.check_idle()

    run.submit(make_request("b", 8, max_tokens=4))
    assert run.run()["b"].num_tokens == 4


def test_last_runner_beside_a_foreign_holder_ends_with_capacity() -> None:
    run = run_of(8)
    run.submit(make_request("a", 8, max_tokens=20))
    run.step()
    held = run.manager.create(np.arange(100, 116, dtype=np.int32))
    assert held.resize(16)
    for _ in range(40):
        if not run.scheduler.has_work:
            break
        run.step()

    assert run.outputs["a"].finish_reason is FinishReason.CAPACITY
    assert run.outputs["a"].num_tokens == 9  # four pages are somebody else's
    held.close()
    run.submit(make_request("b", 8, max_tokens=4))
    assert run.run()["b"].finish_reason is FinishReason.LENGTH


def test_stall_is_reported_with_who_waits_and_who_holds() -> None:
    run = run_of(8)
    held = run.manager.create(np.arange(100, 128, dtype=np.int32))
    assert held.resize(28)
    run.submit(make_request("a", 12, max_tokens=2))

    plan = run.step()

    assert plan.stall is not None
    assert plan.stall.wait.request_id == "a"
    assert plan.stall.pool_pages == (8,)
    assert plan.stall.supply == (1,)
    assert plan.stall.held == (7,)
    held.close()
    assert run.run()["a"].num_tokens == 2


@pytest.mark.parametrize("partials", [2, 3])
def test_prefills_that_block_one_another_are_freed_in_order(partials: int) -> None:
    run = run_of(12, max_num_tokens=16, max_chunk_tokens=4, max_partial_prefills=partials, rows=3)
    for name in "abc"[:partials]:
        run.submit(make_request(name, 40, max_tokens=4))

    outputs = run.run()

    assert run.scheduler.statistics().suspended > 0
    assert list(outputs) == list("abc"[:partials])
    assert [outputs[name].num_tokens for name in "abc"[:partials]] == [4] * partials


def test_nobody_is_admitted_by_a_step_that_suspends() -> None:
    run = run_of(8)
    for name in "abcd":
        run.submit(make_request(name, 7, max_tokens=10))
    run.step()
    run.step()
    run.submit(make_request("tiny", 1, max_tokens=1))

    plan = run.step()

    assert plan.victims
    assert not plan.admissions


def test_resume_gate_does_not_hold_back_the_only_request() -> None:
    run = run_of(8)
    run.submit(make_request("a", 1, max_tokens=4))
    run.submit(make_request("b", 27, max_tokens=6))
    run.step()
    run.step()
    assert run.step().victims  # b needs all eight pages, one is a's

    assert run.run()["b"].num_tokens == 6  # with nothing else active, though it leaves less than a twentieth free


def test_only_what_has_produced_a_token_since_it_came_back_may_be_suspended() -> None:
    sequences = RunningSequences(3, 32)
    for row, suspensions in enumerate((0, 1, 1)):
        request = make_request(f"r{row}", 4, max_tokens=8)
        past = Milestones(num_suspensions=suspensions)
        sequence = SequenceStart(
            request=request, order=row, tokens=request.prompt, max_length=12, stop_ids=(), milestones=past
        )
        sequences.enter(row, sequence, now=0.0)
    sequences.append(np.array([2]), np.array([9]), now=1.0)

    assert has_progressed(sequences, np.arange(3)).tolist() == [True, False, True]
