"""What a cut by balancing must leave alone: work that was done before, and the limit of partial prefills."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import Decision, Plan, SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request


def run_of(pages: int, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": 8, "headroom_blocks": 0, **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full()), max_sequences=8, max_seq_len=512, tokens_per_block=4, pool_slots=(pages,)
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def cut(run: PlanningRun, plan: Plan, max_tokens: int) -> Plan:
    return run.scheduler.restrict(plan, Decision(max_tokens=max_tokens))


def returning_plan(run: PlanningRun) -> Plan:
    """Step until a suspended request is about to come back while another decodes."""
    for name, max_tokens in (("a", 4), ("b", 16), ("c", 12)):
        run.submit(make_request(name, 7, max_tokens=max_tokens))
    for _ in range(30):
        plan = run.scheduler.plan()
        if len(plan.decodes) and any(not entry.is_first for entry in plan.admissions):
            return plan
        run.step()
    raise AssertionError("nobody came back")


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_a_request_that_comes_back_is_cut_to_a_block_and_never_left_out(max_tokens: int) -> None:
    run = run_of(8)
    plan = returning_plan(run)

    left = cut(run, plan, max_tokens)

    assert left.held == ()
    (entry,) = left.admissions
    assert 0 < entry.end - entry.start <= 4
    with run.manager.reserve(left.quote) as reservation:
        assert len(reservation.rows) == left.num_sequences


def test_a_cut_leaves_no_more_prompts_in_the_middle_than_allowed() -> None:
    run = run_of(60, max_chunk_tokens=8, max_partial_prefills=1)
    run.submit(make_request("long", 60))
    run.step()
    run.submit(make_request("short", 8))
    plan = run.scheduler.plan()
    assert (len(plan.chunks), len(plan.admissions)) == (1, 1)

    left = cut(run, plan, 12)

    assert [chunk.end - chunk.start for chunk in left.chunks] == [8]
    assert (left.admissions, left.held) == ((), ("short",))


def test_as_many_prompts_are_cut_as_may_be_in_the_middle() -> None:
    run = run_of(60, max_chunk_tokens=8, max_partial_prefills=2)
    run.submit(make_request("long", 60))
    run.step()
    run.submit(make_request("short", 8))

    left = cut(run, run.scheduler.plan(), 12)

    assert [entry.end - entry.start for entry in left.admissions] == [4]
