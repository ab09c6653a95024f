"""Hold first chunks back while more may join them. A filter after the plan: it takes nothing from decodes."""

from __future__ import annotations

from dataclasses import replace

from tidegate.scheduling.balance import Decision
from tidegate.scheduling.plan import Plan
from tidegate.scheduling.prefill import PlanView
from tidegate.scheduling.restricting import restrict

_HOLD = Decision(hold=True)


def batch_wait(view: PlanView, plan: Plan, now: float) -> Plan:
    """Return the plan that is left of ``plan`` at clock time ``now``. Changes nothing."""
    config = view.config
    if not any(entry.is_first for entry in plan.admissions):
        return plan
    if not view.sequences.num_used:
        deadline = _first_submission(view) + config.batch_wait_timeout_ms / 1000.0
        is_full = len(view.queue) >= config.max_batch_size
        if is_full or now >= deadline or not all(entry.is_first for entry in plan.admissions):
            return plan
        return replace(restrict(view, plan, _HOLD), timer_s=deadline)
    count = view.memory.batch_waits
    is_small = plan.num_tokens < config.batch_wait_max_tokens_ratio * config.max_num_tokens
    if len(plan.decodes) and is_small and count < config.batch_wait_timeout_iters:
        return replace(restrict(view, plan, _HOLD), batch_waits=count + 1)
    return plan


def _first_submission(view: PlanView) -> float:
    return next(view.queue.by_arrival()).submitted_s
