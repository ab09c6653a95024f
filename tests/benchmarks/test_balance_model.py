import pytest

from benchmarks.balance_model import Load, policies, run
from tidegate.scheduling import Balancer, CostAwareWait, NoBalance

SMALL = Load(num_requests=1_500, concurrency=256, num_seats=64, num_ranks=4, mean_output=400)


def test_model_serves_every_token_under_every_policy() -> None:
    total = sum(SMALL.lengths()[1])

    for balancer in policies(SMALL.num_seats).values():
        outcome = run(SMALL, balancer)
        assert 0 < outcome.tokens_per_s < total
        assert 0 < outcome.balance_ratio <= 1


def test_waiting_for_others_pays_when_every_seat_is_wanted() -> None:
    baseline = run(SMALL, Balancer(NoBalance(), 0))

    balanced = run(SMALL, Balancer(CostAwareWait(), 60))

    assert balanced.tokens_per_s > 1.15 * baseline.tokens_per_s


@pytest.mark.parametrize("concurrency", [4, 16])
def test_cost_aware_waiting_costs_no_throughput_at_low_load(concurrency: int) -> None:
    load = Load(num_requests=20 * concurrency, concurrency=concurrency, num_ranks=4, mean_output=400)
    baseline = run(load, Balancer(NoBalance(), 0))

    assert run(load, Balancer(CostAwareWait(), 60)).tokens_per_s > 0.99 * baseline.tokens_per_s
