"""When requests are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError

_SPACINGS = ("poisson", "even")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """At most ``concurrency`` requests in flight (None: no limit), ``request_rate`` new ones a second.

    Without a rate the loop is closed: the next request is sent when one has ended. With a rate a request *arrives* when
    the load says so, and waiting for a free place counts as its latency.
    """

    concurrency: int | None = None
    request_rate: float | None = None
    spacing: Literal["poisson", "even"] = "poisson"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency={self.concurrency} must be at least 1", concurrency=self.concurrency)
        rate = self.request_rate
        if rate is not None and not 1e-6 <= rate <= 1e9:
            raise ConfigError(f"request_rate={rate} must be a number in [1e-06, 1e+09]", request_rate=rate)
        if self.spacing not in _SPACINGS:
            raise ConfigError(f"spacing={self.spacing!r} must be one of {', '.join(_SPACINGS)}", spacing=self.spacing)
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} must not be negative", seed=self.seed)

    def arrivals(self, count: int) -> npt.NDArray[np.float64] | None:
        """Return when each of ``count`` requests arrives, seconds from the start; None in a closed loop."""
        if self.request_rate is None:
            return None
        if self.spacing == "even":
            return np.arange(count, dtype=np.float64) * (1 / self.request_rate)
        gaps = np.random.default_rng(self.seed).exponential(1 / self.request_rate, max(0, count - 1))
        return np.concatenate([[0.0], np.cumsum(gaps)])[:count]
