"""What each rank computed in each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class TokenHistory:
    """``tokens`` int64 ``[steps, ranks]`` computed by each rank; ``step_s`` float64 ``[steps]``: how long each took."""

    tokens: Int64Array
    step_s: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2 or self.tokens.shape[1] == 0 or self.step_s.shape != self.tokens.shape[:1]:
            raise ConfigError(
                f"tokens of shape {list(self.tokens.shape)} must be [steps, ranks], at least one rank, and step_s of "
                f"shape {list(self.step_s.shape)} have one entry for each step",
                field="tokens",
            )

    @property
    def imbalance(self) -> float | None:
        """What the busiest ranks computed, over all steps, relative to the mean rank; None when nothing was.

        1 is perfect balance, the number of ranks the worst. As every step lasts as long as its busiest rank, it is by
        what factor imbalance prolongs the run where a step's time is its tokens.
        """
        total = float(self.tokens.sum())
        return float(self.tokens.max(axis=1).sum()) * self.tokens.shape[1] / total if total else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of all ranks per second of all steps; None for a run that took no time."""
        seconds = float(self.step_s.sum())
        return float(self.tokens.sum()) / seconds if seconds else None
