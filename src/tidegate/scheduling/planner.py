"""Decide a step: decodes first, then prefills. Pure: reads sequences, queue and cache, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tidegate.base import Int64Array
from tidegate.cache import Quote
from tidegate.scheduling.drafts import Drafts
from tidegate.scheduling.plan import Plan, Stall, Wait
from tidegate.scheduling.policy import has_progressed, victim_order
from tidegate.scheduling.prefill import PlanView, PrefillDraft


@dataclass(frozen=True, slots=True, eq=False)
class _Decodes:
    """The decode half: priced rows and whom they displace, or the row that can never go on."""

    quote: Quote
    rows: Int64Array
    drafts: Drafts | None = None
    victims: tuple[int, ...] = ()
    exhausted: tuple[int, ...] = ()
    must_settle: bool = False


def make_plan(view: PlanView) -> Plan:
    """Plan the next step. While a step is in flight nobody is suspended: what does not fit waits for it to settle."""
    active = view.sequences.active()
    in_flight = bool(view.manager.num_open[view.sequences.is_used].any())
    decodes = _fit_decodes(view, active, in_flight)
    if decodes.exhausted or decodes.must_settle:
        return Plan(quote=decodes.quote, decodes=decodes.rows, exhausted=decodes.exhausted, is_short=True)
    staying = _without(active, decodes.victims)
    if len(staying) == len(decodes.rows) and not len(view.queue):
        return Plan(quote=decodes.quote, decodes=decodes.rows, drafts=decodes.drafts, victims=decodes.victims)
    draft = PrefillDraft(view, decodes.quote, staying, decodes.rows, decodes.victims, drafts=decodes.drafts)
    draft.continue_running()
    if not decodes.victims:
        draft.admit_waiting()
    plan = Plan(
        quote=draft.quote,
        decodes=decodes.rows,
        drafts=decodes.drafts,
        chunks=tuple(draft.chunks),
        admissions=(*draft.parked, *draft.admissions),
        victims=decodes.victims,
        deferred=tuple(draft.deferred),
        is_short=draft.is_short,
        wait=draft.wait,
        seen=tuple(draft.seen),
    )
    if not plan.is_idle or in_flight or draft.wait is None:
        return plan
    if len(active):
        return _break_tie(view, active, plan)
    return _stalled(view, plan, draft.wait)


def _fit_decodes(view: PlanView, active: Int64Array, in_flight: bool) -> _Decodes:
    """Price one token for each decoding row, suspending as few as it takes.

    A row whose open step may be its last one for length is left out: it ends when that settles. Drafts come on top
    where they fit; nobody is suspended for them.
    """
    manager, sequences = view.manager, view.sequences
    capacity = manager.capacity[active]
    is_decoding = (capacity >= sequences.target[active]) & (capacity < sequences.max_length[active] - 1)
    if view.drafter is not None and in_flight:
        is_decoding &= ~view.drafter.must_settle(active, capacity)
    rows, ends = (active, capacity + 1) if is_decoding.all() else (active[is_decoding], capacity[is_decoding] + 1)
    quote = manager.quote()
    if view.drafter is not None and len(rows):
        drafts = _fit_drafts(view, quote, rows, ends, len(rows) < len(active) or len(view.queue) > 0)
        if drafts is not None:
            return _Decodes(quote, rows, drafts)
    if not len(rows) or quote.add(rows, ends):
        return _Decodes(quote, rows)
    none = rows[:0]
    if in_flight:
        return _Decodes(quote, none, must_settle=True)
    victims: list[int] = []
    for victim in victim_order(sequences, active[has_progressed(sequences, active)]).tolist():
        if len(victims) == len(active) - 1:
            return _Decodes(quote, none, exhausted=(victim,))
        victims.append(victim)
        remaining = _without(rows, tuple(victims))
        quote = manager.quote()
        quote.suspend(np.array(victims, dtype=np.int64))
        if not len(remaining) or quote.add(remaining, manager.capacity[remaining] + 1):
            return _Decodes(quote, remaining, victims=tuple(victims))
    return _Decodes(manager.quote(), none)


def _fit_drafts(view: PlanView, quote: Quote, rows: Int64Array, ends: Int64Array, leave: bool) -> Drafts | None:
    """Price the rows with as many drafts as fit; None, with the quote as it was, if the rows have to go without.

    ``leave``: prefills want tokens too, so drafts take half of what is left at most, and leave a block.
    """
    assert view.drafter is not None
    most = view.config.max_num_tokens - len(rows)
    drafts = view.drafter.propose(rows, ends, min(most // 2, most - view.align) if leave else most)
    if drafts is None or quote.add(rows, ends + drafts.counts):
        return drafts
    # The pages that the next tokens need anyway may have room for some.
    drafts = drafts.cut(np.min([-ends % group.block_tokens for group in view.manager.groups], axis=0))
    return drafts if quote.add(rows, ends + drafts.counts) else None


def _break_tie(view: PlanView, active: Int64Array, stuck: Plan) -> Plan:
    """Free the foremost of several prefills that block one another, or end the only sequence: it can never go on.

    Only here may a sequence be suspended that produced nothing since it came back. The one that stays is always the
    last in victim order, so it reaches its end.
    """
    order = victim_order(view.sequences, active).tolist()
    for count in range(1, len(order)):
        victims = tuple(order[:count])
        quote = view.manager.quote()
        quote.suspend(np.array(victims, dtype=np.int64))
        draft = PrefillDraft(view, quote, _without(active, victims), active[:0], victims)
        draft.continue_running()
        if draft.chunks:
            return Plan(quote=quote, decodes=active[:0], chunks=tuple(draft.chunks), victims=victims, wait=stuck.wait)
    return Plan(quote=stuck.quote, decodes=active[:0], exhausted=(order[-1],), wait=stuck.wait)


def _stalled(view: PlanView, plan: Plan, wait: Wait) -> Plan:
    supply = view.manager.quote().supply
    held = tuple(pages - free for pages, free in zip(view.pool_pages, supply, strict=True))
    stall = Stall(wait, len(view.queue), view.pool_pages, supply, held)
    return replace(plan, stall=stall)


def _without(rows: Int64Array, others: tuple[int, ...]) -> Int64Array:
    if not others:
        return rows
    return rows[~np.isin(rows, np.array(others, dtype=np.int64))]
