"""Hold and cut prefills by what that saves and what it costs, both learned from the rows.

A step lasts as long as its busiest rank. Prefill tokens beyond the busiest rank's decodes lengthen it for all, and
where a rank has nothing to fill that time with, it is wasted. Waiting lets sequences of the other ranks finish and
bring prefills of their own; it costs empty seats. So the policy keeps an account: each step that prefills wait pays in
what the waiting costs, and prefills run up to the level of tokens per rank whose waste the account covers. A level that
all ranks can fill is free. That balances both costs without a model of the load: the dearer waiting is, the less is
gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.base import Int64Array, check_integer, check_real
from tidegate.scheduling.balance.policy import Decision
from tidegate.scheduling.balance.rank_row import Column
from tidegate.scheduling.balance.step_cost import StepCost

_WHOLE = 1000
_RATE_BITS = 24
_RATE_MEMORY = 8
_LEAST_STEP_SHARE = 3
_LEAST_CHUNK_SHARE = 4
"""Running prefills cannot be held. They, and anything worth starting, may always lengthen a step by 1/2**3 of its time,
and get 1/2**4 of the chunk they could have: a long prompt takes at most 16 times as many steps, each much shorter. More
weight on latency gives more of the chunk."""


@dataclass(frozen=True, slots=True)
class CostAwareState:
    """What was learned: step times, each rank's completions per step (in 1/2**24), and what waiting has paid in.

    ``busiest_tokens`` of the last step belong to the step time that the next rows bring.
    """

    cost: StepCost = field(default_factory=StepCost)
    busiest_tokens: int = 0
    rates: tuple[int, ...] = ()
    account_ps: int = 0


@dataclass(frozen=True, slots=True)
class CostAwareWait:
    """Releases as soon as one more step of waiting costs more than it saves; when it must, it cuts chunks to a level.

    ``latency_weight`` is the one knob: at 0 a second of a waiting request counts as much as a second that a decoding
    one loses, which serves throughput; at 0.5 twice as much; at 1 nothing ever waits. A first chunk that was held
    ``max_hold_iters`` times runs. Until rows bring step times, half of a decode step counts as fixed.
    """

    latency_weight: float = 0.25
    max_hold_iters: int = 60

    def __post_init__(self) -> None:
        check_real("latency_weight", self.latency_weight, 0.0, 1.0)
        check_integer("max_hold_iters", self.max_hold_iters, 0, 2**31 - 1)

    def start(self) -> CostAwareState:
        """Return the state that knows nothing."""
        return CostAwareState()

    def decide(self, state: CostAwareState, rows: Int64Array) -> tuple[CostAwareState, Decision]:
        """Learn from the last step and set the level of this one."""
        plan = _FleetPlan(np.asarray(rows, dtype=np.int64))
        learned, rates = _cost_after(state, plan), _rates_after(state, plan)
        patience = _WHOLE - round(self.latency_weight * _WHOLE)
        if patience == 0 or not plan.can_wait or plan.held_passes >= self.max_hold_iters:
            return CostAwareState(learned, plan.top, rates), Decision()
        cost = _guess(plan.natural) if learned.is_unknown else learned
        waiting_ps = cost.step_ps(plan.natural) * plan.idle_seats * _WHOLE // (plan.num_decodes * patience)
        account = state.account_ps + waiting_ps
        least = plan.natural + _least_extra(cost, plan, patience)
        level, spent = least if plan.is_prefilling else plan.natural, 0
        for candidate in plan.levels(least):
            waste = plan.waste(candidate) * cost.token_ps() // plan.num_ranks
            saving = plan.expected_filling(candidate, rates) * cost.token_ps() // plan.num_ranks
            if waste <= account or saving <= waiting_ps:
                level, spent = candidate, waste
        state = CostAwareState(learned, min(level, plan.top), rates, max(account - spent, 0))
        if level >= plan.top:
            return state, Decision()
        return state, Decision(hold=True) if level == plan.natural else Decision(max_tokens=level)


class _FleetPlan:
    """What all ranks plan, and what a level of tokens per rank would make of it."""

    def __init__(self, rows: Int64Array) -> None:
        self.rows = rows
        self.num_ranks = len(rows)
        self._decodes = rows[:, Column.DECODE_TOKENS]
        self._prefills = rows[:, Column.CTX_TOKENS]
        self._totals = self._decodes + self._prefills
        self._running = rows[:, Column.CTX] - rows[:, Column.FIRST]
        self.num_decodes = int(rows[:, Column.GEN_REAL].sum())
        self.natural = int(self._decodes.max())
        self.top = int(self._totals.max())
        self.held_passes = int(rows[:, Column.HELD_PASSES].max())
        self.is_prefilling = bool(self._running.any())

    @property
    def can_wait(self) -> bool:
        """Whether prefills lengthen the step and decodes run meanwhile."""
        return self.num_decodes > 0 and self.top > self.natural

    @property
    def idle_seats(self) -> int:
        """Sequences that could decode but for the prefill they lack."""
        rows = self.rows
        startable = np.maximum(rows[:, Column.FIRST], np.minimum(rows[:, Column.WAITING], rows[:, Column.FREE_SEATS]))
        return int((startable + self._running).sum())

    @property
    def running_chunk(self) -> int:
        """Mean chunk on the rank where that is longest, of ranks in the middle of a prompt."""
        busy = self._running > 0
        return int((self._prefills[busy] // self.rows[busy, Column.CTX]).max(initial=0))

    @property
    def mean_prompt(self) -> int:
        """Tokens not yet computed of a mean request that waits or prefills."""
        requests = int((self.rows[:, Column.WAITING] + self._running).sum())
        return int(self.rows[:, Column.BACKLOG_TOKENS].sum()) // max(requests, 1)

    def levels(self, least: int) -> list[int]:
        """Return where ranks run out of work, ascending from ``least`` on; at the last level all prefills run."""
        return [level for level in np.unique(self._totals).tolist() if level >= least or level == self.top]

    def waste(self, level: int) -> int:
        """Return the tokens that ranks could have computed while the step was longer than its decodes, and did not."""
        done = np.minimum(self._prefills, level - self._decodes)
        return max(self.num_ranks * (level - self.natural) - int(done.sum()), 0)

    def expected_filling(self, level: int, rates: tuple[int, ...]) -> int:
        """Return the tokens that completions of one more step would bring to ranks that do not reach the level."""
        short = (self._totals < level).tolist()
        rate = sum(rate for rate, is_short in zip(rates, short, strict=True) if is_short)
        return rate * self.mean_prompt >> _RATE_BITS


def _least_extra(cost: StepCost, plan: _FleetPlan, patience: int) -> int:
    share = cost.step_ps(plan.natural) // max(cost.token_ps(), 1) >> _LEAST_STEP_SHARE
    return max(share, (plan.running_chunk >> _LEAST_CHUNK_SHARE) * _WHOLE // patience, 1)


def _guess(natural: int) -> StepCost:
    return StepCost().after(max(natural, 1), max(2 * natural, 1))


def _cost_after(state: CostAwareState, plan: _FleetPlan) -> StepCost:
    last_us = int(plan.rows[:, Column.LAST_STEP_US].max())
    if state.busiest_tokens == 0 or last_us <= 0:
        return state.cost
    return state.cost.after(state.busiest_tokens, last_us)


def _rates_after(state: CostAwareState, plan: _FleetPlan) -> tuple[int, ...]:
    finished: list[int] = plan.rows[:, Column.FINISHED].tolist()
    before = state.rates if len(state.rates) == len(finished) else (0,) * len(finished)
    gained = _RATE_BITS - _RATE_MEMORY
    return tuple(
        rate - (rate >> _RATE_MEMORY) + (count << gained) for rate, count in zip(before, finished, strict=True)
    )
