"""The virtual clock moves by what the step of all ranks would take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int64Array, VirtualClock
from tidegate.engine.simulated import CostModel, FleetStep, StepTime
from tidegate.runtime.group import Rank
from tidegate.scheduling import Plan


class Pacer:
    """Prices the plans of all ranks and moves the clock.

    With ``overlap`` a step's tokens are known when the next one is launched, so the clock moves by the step before.
    """

    def __init__(self, cost: CostModel, clock: VirtualClock, *, overlap: bool) -> None:
        self._cost = cost
        self._clock = clock
        self._overlap = overlap
        self._launched_s = 0.0
        self.ranks: Sequence[Rank] = ()
        self.last: StepTime | None = None
        """The time of the step that was priced last; None when the last call only ended one."""

    def __call__(self, tokens: Sequence[int]) -> None:
        """Move the clock for a step of so many tokens per rank; the plans tell which."""
        self.last = self._cost.step_time(fleet_step(self.ranks)) if any(tokens) else None
        seconds = 0.0 if self.last is None else self.last.total_s
        if self._overlap:
            seconds, self._launched_s = self._launched_s, seconds
        self._clock.advance(seconds)


def fleet_step(ranks: Sequence[Rank]) -> FleetStep:
    """Return what the proposed plans compute."""
    starts, ends, splits, num_logits = list[Int64Array](), list[Int64Array](), [0], []
    for rank in ranks:
        plan, logits = rank.plan, 0
        if plan is not None and plan.num_sequences:
            begin, end, logits = _spans(rank, plan)
            starts.append(begin)
            ends.append(end)
        num_logits.append(logits)
        splits.append(splits[-1] + (0 if plan is None else plan.num_sequences))
    nothing = np.zeros(0, dtype=np.int64)
    return FleetStep(
        np.concatenate(starts) if starts else nothing,
        np.concatenate(ends) if ends else nothing,
        np.array(splits),
        np.array(num_logits),
        np.zeros(len(num_logits), dtype=np.int64),
    )


def _spans(rank: Rank, plan: Plan) -> tuple[Int64Array, Int64Array, int]:
    """Return where each sequence of a plan starts and ends, and how many rows of logits it needs."""
    capacity = rank.manager.capacity
    starts, ends = capacity[plan.decodes], plan.decode_ends(capacity)
    num_logits = plan.num_decode_tokens
    if plan.chunks or plan.admissions:
        spans = [(chunk.start, chunk.end) for chunk in plan.chunks] + [(e.start, e.end) for e in plan.admissions]
        prefills = np.array(spans, dtype=np.int64)
        starts, ends = np.concatenate([starts, prefills[:, 0]]), np.concatenate([ends, prefills[:, 1]])
        target = rank.scheduler.sequences.target
        num_logits += sum(chunk.end >= target[chunk.row] for chunk in plan.chunks)
        num_logits += sum(entry.end >= entry.waiting.candidate.num_tokens for entry in plan.admissions)
    return starts, ends, int(num_logits)
