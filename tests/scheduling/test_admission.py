import pytest

from tidegate.base import ConfigError, QueueFull, RequestTooLong
from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request


def run_of(pages: int, *, block: int = 4, rows: int = 8, max_seq_len: int = 512, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": rows, **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full()),
            max_sequences=rows,
            max_seq_len=max_seq_len,
            tokens_per_block=block,
            pool_slots=(pages,),
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def admitted(run: PlanningRun) -> list[str]:
    return [entry.waiting.request.request_id for entry in run.step().admissions]


def test_first_come_first_served() -> None:
    run = run_of(32, rows=2)
    for name in "abc":
        run.submit(make_request(name, 5, priority=ord("c") - ord(name)))

    assert admitted(run) == ["a", "b"]


def test_priority_goes_first_then_arrival() -> None:
    run = run_of(32, rows=2, policy="priority")
    for name, priority in (("a", 3), ("b", 1), ("c", 1)):
        run.submit(make_request(name, 5, priority=priority))

    assert admitted(run) == ["b", "c"]


def test_waiting_request_owns_nothing() -> None:
    run = run_of(16, rows=1)
    run.submit(make_request("a", 8))
    run.submit(make_request("b", 8))
    run.step()
    supply = run.supply

    for _ in range(2):
        run.step()

    assert run.supply == (supply[0] - 1,)  # a's own third block
    assert run.scheduler.statistics().waiting == 1


def test_plan_changes_nothing() -> None:
    run = run_of(16)
    run.submit(make_request("a", 30))
    run.step()
    before = (run.supply, run.manager.capacity.tolist(), run.scheduler.statistics())

    plans = [run.scheduler.plan().decisions() for _ in range(3)]

    assert plans[0] == plans[1] == plans[2]
    assert (run.supply, run.manager.capacity.tolist(), run.scheduler.statistics()) == before


def test_headroom_is_left_for_what_is_active_but_not_when_nothing_is() -> None:
    run = run_of(20, headroom_share=0.5)
    run.submit(make_request("a", 16, max_tokens=40))
    run.step()
    run.submit(make_request("b", 58, max_tokens=1))  # 15 of the 16 pages left, but a may soon want 2
    plan = run.step()

    assert not plan.admissions
    assert plan.wait is not None
    assert (plan.wait.request_id, plan.wait.reason) == ("b", "headroom")

    lone = run_of(20, headroom_share=0.5)
    lone.submit(make_request("b", 78, max_tokens=1))
    assert admitted(lone) == ["b"]


def test_headroom_is_at_most_its_share_of_the_pool() -> None:
    run = run_of(20, headroom_share=0.05)  # one page
    run.submit(make_request("a", 16, max_tokens=40))
    run.step()
    run.submit(make_request("b", 55, max_tokens=1))

    assert admitted(run) == ["b"]


def test_one_partial_prefill_at_a_time_by_default() -> None:
    run = run_of(128, max_num_tokens=24, max_partial_prefills=1)
    run.submit(make_request("a", 40))
    run.submit(make_request("b", 100))

    first, second = run.step(), run.step()

    assert [entry.end for entry in first.admissions] == [24]
    assert [chunk.end for chunk in second.chunks] == [40]
    assert [(entry.start, entry.end) for entry in second.admissions] == [(0, 8)]


def test_plan_looks_at_a_bounded_number_of_waiting_requests() -> None:
    run = run_of(256, rows=4, extra_probes=3, max_num_tokens=512)
    shared = list(range(8))
    for number in range(50):
        run.submit(make_request(f"r{number}", [*shared, number]))

    plan = run.step()

    assert len(plan.admissions) == 1
    assert len(plan.deferred) == 4 + 3 - 1


def test_request_that_can_never_fit_is_refused_with_the_numbers() -> None:
    run = run_of(8)

    with pytest.raises(RequestTooLong, match="20 prompt tokens and max_tokens=100 make 120") as refusal:
        run.submit(make_request("a", 20, max_tokens=100))

    assert refusal.value.evidence["prompt_tokens"] == 20
    assert not run.scheduler.has_work


def test_length_beyond_the_model_is_refused_even_when_pages_would_do() -> None:
    run = run_of(100, max_seq_len=32)

    with pytest.raises(RequestTooLong, match="max_seq_len=32"):
        run.submit(make_request("a", 30, max_tokens=3))
    run.submit(make_request("b", 30, max_tokens=2))
    assert run.run()["b"].num_tokens == 2


def test_prompt_that_can_never_fit_ends_at_once_when_asked_to_run_as_far_as_it_can() -> None:
    run = run_of(8)

    run.submit(make_request("a", 40, max_tokens=5, run_to_capacity=True))

    assert run.outputs["a"].finish_reason is FinishReason.CAPACITY
    assert run.outputs["a"].num_tokens == 0
    assert not run.scheduler.has_work


def test_foreign_token_ids_are_refused_at_submission() -> None:
    run = run_of(8)

    with pytest.raises(ConfigError, match=r"prompt\[1\]=1000"):
        run.submit(make_request("a", [1, 1000]))
    with pytest.raises(ConfigError, match=r"stop_token_ids\[0\]=1000"):
        run.submit(make_request("a", [1], stop_token_ids=(1000,)))
    assert not run.scheduler.has_work


def test_id_in_use_is_refused_waiting_or_running() -> None:
    run = run_of(8)
    run.submit(make_request("a", 4))

    with pytest.raises(ConfigError, match="'a' is in use"):
        run.submit(make_request("a", 4))
    run.step()
    with pytest.raises(ConfigError, match="'a' is in use"):
        run.submit(make_request("a", 4))
    run.run()
    run.submit(make_request("a", 4))


def test_queue_beyond_its_limit_refuses() -> None:
    run = run_of(8, max_waiting=2)
    run.submit(make_request("a", 4))
    run.submit(make_request("b", 4))

    with pytest.raises(QueueFull, match="max_waiting=2"):
        run.submit(make_request("c", 4))
    run.run()
    run.submit(make_request("c", 4))


def test_token_budget_must_hold_one_block() -> None:
    with pytest.raises(ConfigError, match="max_num_tokens=8 must be at least 16"):
        run_of(8, block=16, max_num_tokens=8, rows=4)


def test_second_long_prompt_waits_while_one_is_partial() -> None:
    run = run_of(128, max_num_tokens=64, max_chunk_tokens=8)
    run.submit(make_request("a", 40))
    run.submit(make_request("b", 40))

    plan = run.step()

    assert [(entry.start, entry.end) for entry in plan.admissions] == [(0, 8)]
    assert plan.wait is not None
    assert (plan.wait.request_id, plan.wait.reason) == ("b", "partial_prefills")
