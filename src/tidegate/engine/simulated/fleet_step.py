"""What a step of all ranks is made of, and how long it takes: the boundary between cost models and who asks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.base import Int64Array

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FleetStep:
    """What all ranks compute in one step, end to end.

    Sequence ``i`` computes positions ``starts[i]`` to ``ends[i]`` over keys and values of all before; both int64
    ``[n]``. Rank ``r`` owns sequences ``splits[r]`` to ``splits[r + 1]`` (int64 ``[ranks + 1]``), asks for
    ``num_logits[r]`` rows of logits, and copies ``copied_bytes[r]`` between pages or tiers (both int64 ``[ranks]``).
    """

    starts: Int64Array
    ends: Int64Array
    splits: Int64Array
    num_logits: Int64Array
    copied_bytes: Int64Array

    @property
    def num_ranks(self) -> int:
        """How many ranks take part; those without sequences wait for the others."""
        return len(self.num_logits)


@dataclass(frozen=True, slots=True, eq=False)
class StepTime:
    """Seconds of one step: each rank's own ``[ranks]``, what all share, and what the host adds on top.

    Ranks in lockstep take ``total_s``: the slowest rank's own time, the shared part and the host's.
    """

    rank_s: Float64Array
    shared_s: float
    host_s: float

    @property
    def total_s(self) -> float:
        """How long the step lasts for everybody."""
        return float(self.rank_s.max(initial=0.0)) + self.shared_s + self.host_s


class CostModel(Protocol):
    """How long steps take. Pure: the same step always takes equally long."""

    def step_time(self, step: FleetStep) -> StepTime:
        """Return the time of one step; vectorized over sequences and ranks."""
        ...
