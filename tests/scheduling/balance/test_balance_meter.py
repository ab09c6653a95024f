import numpy as np
import pytest

from tidegate.scheduling import BalanceMeter


def test_ratio_is_mean_over_busiest() -> None:
    meter = BalanceMeter()
    meter.add(np.array([10, 10]), 1.0)
    meter.add(np.array([0, 10]), 3.0)

    assert meter.ratio == pytest.approx((1.0 + 0.5) / 2)
    assert meter.ratio_by_time == pytest.approx((1.0 * 1 + 0.5 * 3) / 4)


def test_step_without_tokens_does_not_count() -> None:
    meter = BalanceMeter()
    meter.add(np.array([0, 0]), 5.0)

    assert (meter.num_steps, meter.seconds, meter.ratio, meter.ratio_by_time) == (0, 0.0, 1.0, 1.0)


def test_time_may_be_unknown() -> None:
    meter = BalanceMeter()
    meter.add(np.array([1, 3]), 0.0)

    assert meter.ratio == pytest.approx(2 / 3)
    assert meter.ratio_by_time == 1.0
