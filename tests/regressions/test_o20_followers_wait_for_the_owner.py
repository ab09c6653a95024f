"""O20: of requests with the same uncached prefix one computes, the others wait until it publishes or is gone."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request

PREFIX = list(range(64))
SALTS = ("x", "y", "z")


def run_of(*, caching: bool = True, **config: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()),
        max_sequences=8,
        max_seq_len=256,
        tokens_per_block=32,
        pool_slots=(64,),
        enable_prefix_caching=caching,
    )
    values = {"max_num_tokens": 512, "max_batch_size": 8, **config}
    return PlanningRun(cache, SchedulerConfig(**values))  # type: ignore[arg-type]  # as given by each test


def submit_three(run: PlanningRun, *, salts: tuple[str | None, ...] = (None, None, None)) -> None:
    for number, salt in enumerate(salts):
        tail = [200 + number * 20 + i for i in range(16)]
        run.submit(make_request(f"r{number}", PREFIX + tail, max_tokens=4, salt=salt))


def test_one_computes_the_prefix_for_all() -> None:
    run = run_of()
    submit_three(run)
    run.submit(make_request("other", [900 + i for i in range(40)], max_tokens=4))
    first, second = run.step(), run.step()

    assert [entry.waiting.request.request_id for entry in first.admissions] == ["r0", "other"]
    assert first.deferred == ("r1", "r2")
    assert [(entry.start, entry.end) for entry in second.admissions] == [(64, 80), (64, 80)]
    assert run.scheduler.statistics().prefill_tokens - 40 == 112
    assert 64 - run.supply[0] == 2 + 3 + 2  # one prefix, three tails, the other
    run.run()


def test_followers_go_when_the_owner_is_gone() -> None:
    run = run_of(max_chunk_tokens=32)
    submit_three(run)
    run.step()
    run.scheduler.finish("r0", FinishReason.ABORTED, now=run.clock.now())

    plan = run.step()

    assert plan.admissions[0].waiting.request.request_id == "r1"
    assert plan.deferred == ("r2",)  # for r1 now, which computes what both need
    assert len(run.run()) == 2


def test_followers_of_a_chunked_owner_start_the_step_after_it_published() -> None:
    run = run_of(max_chunk_tokens=32, max_partial_prefills=3)
    submit_three(run)
    plans = [run.step() for _ in range(3)]

    assert [len(plan.deferred) for plan in plans] == [2, 2, 0]
    assert [(entry.start, entry.end) for entry in plans[2].admissions] == [(64, 80), (64, 80)]


@pytest.mark.parametrize("off", ["caching", "salts", "option"])
def test_nobody_waits_where_nothing_can_be_shared(off: str) -> None:
    run = run_of(caching=off != "caching", share_prefixes=off != "option")
    submit_three(run, salts=SALTS if off == "salts" else (None, None, None))

    plan = run.step()

    assert plan.deferred == ()
    assert len(plan.admissions) == 3
