"""How evenly steps load the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import Int64Array


@dataclass(slots=True)
class BalanceMeter:
    """Mean over steps of (mean tokens of a rank / tokens of the busiest rank); steps without tokens do not count.

    1.0 is perfect balance, 1/ranks the worst. ``seconds`` is the time of the steps that counted.
    """

    num_steps: int = 0
    seconds: float = 0.0
    _sum: float = 0.0
    _sum_by_time: float = 0.0

    def add(self, tokens: Int64Array, seconds: float) -> None:
        """Count a step by its tokens per rank and its time."""
        busiest = int(tokens.max(initial=0))
        if busiest == 0:
            return
        ratio = float(tokens.sum()) / (tokens.size * busiest)
        self.num_steps += 1
        self.seconds += seconds
        self._sum += ratio
        self._sum_by_time += ratio * seconds

    @property
    def ratio(self) -> float:
        """Mean over steps, each counting alike; 1.0 before the first."""
        return self._sum / self.num_steps if self.num_steps else 1.0

    @property
    def ratio_by_time(self) -> float:
        """Mean over steps, each counting by its time; 1.0 before any time has passed."""
        return self._sum_by_time / self.seconds if self.seconds else 1.0
