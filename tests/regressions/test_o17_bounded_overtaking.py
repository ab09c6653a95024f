"""O17: a request that needs much blocked small ones that would fit; skipping it blindly would starve it instead."""

import pytest

from benchmarks.overload import admitted, head_of_line


def test_small_ones_start_at_once_and_the_large_one_keeps_its_place() -> None:
    run = head_of_line(16, arrivals=1)
    plan = run.plans[1]

    assert admitted(plan) == ["light a", "light b"]
    assert plan.wait is not None
    assert plan.wait.request_id == "heavy"
    assert plan.wait.reason in ("pages", "headroom")
    assert [entry.overtaken for entry in plan.admissions] == [("heavy",), ("heavy",)]


@pytest.mark.parametrize("holders", [1, 20])
@pytest.mark.parametrize("max_overtakes", [0, 1, 16, 64])
def test_large_one_starts_though_small_ones_never_stop_coming(max_overtakes: int, holders: int) -> None:
    run = head_of_line(max_overtakes, holders=holders)

    assert len(run.plans) < 200
    assert "heavy" in admitted(run.plans[-1])
    assert run.scheduler.statistics().most_overtakes <= max_overtakes


def test_without_a_bound_it_would_starve() -> None:
    run = head_of_line(1 << 20, holders=20)

    assert all("heavy" not in admitted(plan) for plan in run.plans)


@pytest.mark.parametrize("holders", [1, 20])
def test_arrival_order_is_kept_with_overtaking_off(holders: int) -> None:
    run = head_of_line(0, holders=holders)
    order = [name for plan in run.plans for name in admitted(plan) if not name.startswith("holder")]

    arrivals = ["heavy", "light a", "light b", *(f"light {number}" for number in range(200))]
    assert order == arrivals[: len(order)]


def test_wait_and_overtakes_are_told_per_request() -> None:
    run = head_of_line(16, holders=20)
    outputs = run.run(max_steps=2000)
    counts = run.scheduler.statistics()

    heavy = outputs["heavy"]
    assert heavy.num_overtakes == counts.most_overtakes == 16
    assert heavy.timing.wait_s is not None
    assert counts.longest_wait_s >= heavy.timing.wait_s
    assert outputs["light a"].num_overtakes == 0
    assert sum(output.num_overtakes for output in outputs.values()) == counts.overtakes
