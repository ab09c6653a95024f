"""A decision takes first chunks out of a plan or cuts chunks; what is left is priced and can be reserved."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import Phase
from tidegate.scheduling import Decision, Plan, SchedulerConfig, without_held
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import PlanningRun, make_request

BLOCK = 4


def run_of(slots: int = 60, **settings: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full(), window(8)),
        max_sequences=6,
        max_seq_len=128,
        pool_slots=(slots,),
        tokens_per_block=BLOCK,
        max_chunk_tokens=64,
    )
    values: dict[str, object] = {
        "max_num_tokens": 48,
        "max_batch_size": 6,
        "max_partial_prefills": 4,
        "headroom_blocks": 0,
        **settings,
    }
    return PlanningRun(cache, SchedulerConfig(**values))  # type: ignore[arg-type]  # settings


def busy() -> PlanningRun:
    """One decodes, one is in the middle of its prompt, two wait."""
    run = run_of()
    run.submit(make_request("decodes", 5, max_tokens=60))
    run.step()
    run.submit(make_request("prefills", 100, max_tokens=4))
    run.step()
    for name in ("first", "second"):
        run.submit(make_request(name, 7, max_tokens=4))
    return run


def names(plan: Plan) -> list[str]:
    return [entry.waiting.request.request_id for entry in plan.admissions]


def carry_out(run: PlanningRun, plan: Plan) -> None:
    """Reserve what is left: its quote must be good for exactly that."""
    with run.manager.reserve(plan.quote) as reservation:
        assert int((reservation.ends - reservation.starts).sum()) == plan.num_tokens
        assert len(reservation.rows) == plan.num_sequences
    run.manager.audit()


def test_holding_takes_first_chunks_and_nothing_else() -> None:
    run = run_of(max_num_tokens=64)
    run.submit(make_request("decodes", 5, max_tokens=60))
    run.submit(make_request("prefills", 90, max_tokens=4))
    run.step()
    for name in ("first", "second"):
        run.submit(make_request(name, 7, max_tokens=4))
    plan = run.scheduler.plan()
    assert names(plan) == ["first", "second"]

    held = run.scheduler.restrict(plan, Decision(hold=True))

    assert names(held) == []
    assert held.held == ("first", "second")
    assert held.chunks == plan.chunks and len(plan.chunks) == 1
    assert held.decodes.tolist() == plan.decodes.tolist()
    carry_out(run, held)
    assert without_held(plan, Decision(hold=True)).held == held.held


def test_a_request_that_comes_back_is_never_held() -> None:
    run = run_of(slots=16, max_num_tokens=64)
    for i in range(3):
        run.submit(make_request(f"r{i}", 9, max_tokens=30))
    while run.scheduler.statistics().suspended == 0:
        run.step()
    while not (plan := run.scheduler.plan()).admissions:
        run.step()
    assert [entry.waiting.phase for entry in plan.admissions] == [Phase.SUSPENDED]

    assert names(run.scheduler.restrict(plan, Decision(hold=True))) == names(plan)
    assert run.scheduler.restrict(plan, Decision(hold=True, holds_all_chunks=True)).admissions == ()


def test_replay_holds_later_chunks_too() -> None:
    run = busy()
    plan = run.scheduler.plan()

    held = run.scheduler.restrict(plan, Decision(hold=True, holds_all_chunks=True))

    assert (held.chunks, held.admissions) == ((), ())
    assert len(held.decodes) == 1
    carry_out(run, held)


@pytest.mark.parametrize("most", [1, 2, 5, 9, 17, 30, 47, 48, 1000])
def test_a_cut_ends_at_block_borders_and_leaves_decodes_alone(most: int) -> None:
    run = busy()
    plan = run.scheduler.plan()

    cut = run.scheduler.restrict(plan, Decision(max_tokens=most))

    assert cut.decodes.tolist() == plan.decodes.tolist()
    (chunk,) = cut.chunks
    assert chunk.end % BLOCK == 0 or chunk.end == plan.chunks[0].end
    assert chunk.end > chunk.start  # a running prefill goes on, if only by a block
    assert cut.num_tokens <= max(most, 1 + BLOCK)
    assert set(cut.held) | set(names(cut)) == set(names(plan))
    if most >= plan.num_tokens:
        assert cut is plan
    carry_out(run, cut)


def test_restricting_changes_nothing() -> None:
    run = busy()
    plan = run.scheduler.plan()
    supply = run.supply

    for decision in (Decision(hold=True), Decision(max_tokens=3), Decision()):
        run.scheduler.restrict(plan, decision)

    assert run.supply == supply
    assert run.scheduler.plan().decisions() == plan.decisions()
