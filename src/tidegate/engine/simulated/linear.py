"""Steps that take a fixed time and so much for each token of the busiest rank."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int64Array, check_real
from tidegate.engine.simulated.fleet_step import FleetStep, Float64Array, StepTime


def rank_sums(step: FleetStep, values: Int64Array | Float64Array) -> Float64Array:
    """Return the sum over each rank's sequences, float64 ``[ranks]``, of a value per sequence ``[n]``."""
    whole = np.zeros(len(values) + 1)
    np.cumsum(values, out=whole[1:])
    return np.diff(whole[step.splits])


class LinearCost:
    """``fixed_s`` seconds a step, shared, and ``per_token_s`` for each token of a rank."""

    def __init__(self, fixed_s: float, per_token_s: float) -> None:
        check_real("fixed_s", fixed_s, 0.0, 1e6)
        check_real("per_token_s", per_token_s, 0.0, 1e6)
        self._fixed_s = fixed_s
        self._per_token_s = per_token_s

    def step_time(self, step: FleetStep) -> StepTime:
        """Return the time of one step."""
        return StepTime(rank_sums(step, step.ends - step.starts) * self._per_token_s, self._fixed_s, 0.0)
