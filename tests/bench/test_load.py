import math

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.bench import Load


def test_closed_loop_has_no_arrivals() -> None:
    assert Load(concurrency=4).arrivals(10) is None


def test_even_arrivals_are_spaced_by_the_rate() -> None:
    arrivals = Load(request_rate=4.0, spacing="even").arrivals(4)

    assert arrivals is not None
    np.testing.assert_allclose(arrivals, [0, 0.25, 0.5, 0.75])


def test_poisson_arrivals_keep_the_rate_and_start_at_zero() -> None:
    arrivals = Load(request_rate=10.0, seed=3).arrivals(5001)

    assert arrivals is not None
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(0.1, rel=0.05)
    assert gaps.std() == pytest.approx(0.1, rel=0.05)


def test_same_seed_same_arrivals() -> None:
    first, again = (Load(request_rate=2.0, seed=5).arrivals(20) for _ in range(2))

    assert first is not None and again is not None
    assert first.tolist() == again.tolist()


@pytest.mark.parametrize("count", [0, 1])
def test_few_arrivals(count: int) -> None:
    arrivals = Load(request_rate=2.0).arrivals(count)

    assert arrivals is not None and arrivals.tolist() == [0.0] * count


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_rate_must_be_positive_and_finite(rate: float) -> None:
    with pytest.raises(ConfigError, match="request_rate"):
        Load(request_rate=rate)


@pytest.mark.parametrize("concurrency", [0, -3])
def test_concurrency_must_be_positive(concurrency: int) -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        Load(concurrency=concurrency)


def test_unknown_spacing_is_refused() -> None:
    with pytest.raises(ConfigError, match="spacing"):
        Load(request_rate=1.0, spacing="bursty")  # type: ignore[arg-type]  # what a caller without types may pass
