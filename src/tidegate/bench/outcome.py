"""What became of each request, and the numbers over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tidegate.request import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished request; times in clock seconds, ``first_token_s`` None when it produced nothing."""

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_tokens: int
    arrival_s: float
    first_token_s: float | None
    finished_s: float
    finish_reason: FinishReason

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from arrival."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None with fewer than two."""
        if self.first_token_s is None or self.num_tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.num_tokens - 1)

    @property
    def latency_s(self) -> float:
        """Time from arrival to the end."""
        return self.finished_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one quantity over all requests that have it."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Percentiles | None:
        """Compute them, leaving out None; None when nothing is left."""
        known = np.array([value for value in values if value is not None], np.float64)
        if not len(known):
            return None
        p50, p90, p99 = (float(p) for p in np.percentile(known, (50, 90, 99)))
        return cls(float(known.mean()), p50, p90, p99, float(known.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in numbers; rates are over ``duration_s``, from the first arrival to the last end."""

    num_requests: int
    duration_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reasons: dict[str, int]
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    latency_s: Percentiles | None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Summary:
        """Summarize what became of the requests."""
        begin = min((outcome.arrival_s for outcome in outcomes), default=0.0)
        end = max((outcome.finished_s for outcome in outcomes), default=0.0)
        reasons = [str(outcome.finish_reason) for outcome in outcomes]
        return cls(
            num_requests=len(outcomes),
            duration_s=end - begin,
            prompt_tokens=sum(outcome.num_prompt_tokens for outcome in outcomes),
            cached_tokens=sum(outcome.num_cached_tokens for outcome in outcomes),
            output_tokens=sum(outcome.num_tokens for outcome in outcomes),
            finish_reasons={reason: reasons.count(reason) for reason in sorted(set(reasons))},
            ttft_s=Percentiles.of(outcome.ttft_s for outcome in outcomes),
            tpot_s=Percentiles.of(outcome.tpot_s for outcome in outcomes),
            latency_s=Percentiles.of(outcome.latency_s for outcome in outcomes),
        )

    @property
    def output_tokens_per_s(self) -> float:
        """Produced tokens a second."""
        return self._rate(self.output_tokens)

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and produced tokens a second, cached ones included."""
        return self._rate(self.prompt_tokens + self.output_tokens)

    @property
    def requests_per_s(self) -> float:
        """Finished requests a second."""
        return self._rate(self.num_requests)

    @property
    def cache_hit_ratio(self) -> float:
        """Share of the prompt tokens that was reused."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def record(self) -> dict[str, object]:
        """Return everything as JSON values."""
        return {
            **asdict(self),
            "output_tokens_per_s": self.output_tokens_per_s,
            "total_tokens_per_s": self.total_tokens_per_s,
            "requests_per_s": self.requests_per_s,
            "cache_hit_ratio": self.cache_hit_ratio,
        }

    def _rate(self, count: int) -> float:
        return count / self.duration_s if self.duration_s > 0 else 0.0
