"""Make a plan smaller: first chunks that are held leave it, chunks are cut, and what is left is priced again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from tidegate.base import InternalError
from tidegate.cache import Quote
from tidegate.scheduling.balance import Decision
from tidegate.scheduling.budget import chunk_end, fit_chunk
from tidegate.scheduling.plan import Admission, Chunk, Plan
from tidegate.scheduling.prefill import PlanView


def restrict(view: PlanView, plan: Plan, decision: Decision) -> Plan:
    """Return the plan that a decision leaves; the plan itself when that takes nothing away. Changes nothing.

    A cut leaves at least a block to what was computed before: to running prefills and to those that come back. No more
    sequences than may are left in the middle of their prompt.
    """
    left = None if decision.max_tokens is None else max(decision.max_tokens - plan.num_decode_tokens, 0)
    chunks: list[Chunk] = []
    admissions: list[Admission] = []
    held: list[str] = []
    holds_all = decision.hold and decision.holds_all_chunks
    for chunk in () if holds_all else plan.chunks:
        end = _cut(chunk.start, chunk.end, left, view.align, goes_on=True)
        chunks.append(replace(chunk, end=end))
        left = None if left is None else max(left - (end - chunk.start), 0)
    partials = None if left is None else _partials_left(view, chunks)
    for entry in plan.admissions:
        is_held = decision.hold and (entry.is_first or holds_all)
        end = entry.start
        if not is_held:
            end = _cut(entry.start, entry.end, left, view.align, goes_on=not entry.is_first)
        if partials is not None and end < entry.waiting.candidate.num_tokens:
            if partials <= 0:
                end = entry.start
            partials -= end > entry.start
        if end == entry.start:
            held.append(entry.waiting.request.request_id)
            continue
        admissions.append(replace(entry, end=end))
        left = None if left is None else max(left - (end - entry.start), 0)
    if _sizes(plan.chunks, plan.admissions) == _sizes(chunks, admissions):
        return plan
    return _Repricing(view, replace(plan, held=plan.held + tuple(held))).of(chunks, admissions)


def without_held(plan: Plan, decision: Decision) -> Plan:
    """Return the plan without what a decision holds, for a caller that reserved each admission apart.

    Its quote still holds all of it and must not be reserved.
    """
    if not decision.hold:
        return plan
    holds_all = decision.holds_all_chunks
    held = tuple(e.waiting.request.request_id for e in plan.admissions if holds_all or e.is_first)
    kept = tuple(e for e in plan.admissions if not (holds_all or e.is_first))
    chunks = () if holds_all else plan.chunks
    if not held and len(chunks) == len(plan.chunks):
        return plan
    return replace(plan, chunks=chunks, admissions=kept, held=plan.held + held)


def base_quote(view: PlanView, plan: Plan) -> Quote:
    """Price a plan's victims, decodes and chunks, without its admissions."""
    return _Repricing(view, plan).of(list(plan.chunks), []).quote


def _cut(start: int, end: int, left: int | None, align: int, *, goes_on: bool) -> int:
    """Return where a cut chunk ends: ``start`` if nothing is left for it, but one that ``goes_on`` gets a block."""
    cut = end if left is None else chunk_end(start, end, left, align)
    return min(start + align - start % align, end) if goes_on and cut == start else cut


def _partials_left(view: PlanView, chunks: list[Chunk]) -> int:
    """Return how many admissions may still end in the middle of their prompt, after these chunks."""
    capacity, active = view.manager.capacity.copy(), view.sequences.active()
    for chunk in chunks:
        capacity[chunk.row] = chunk.end
    return view.config.max_partial_prefills - int((capacity[active] < view.sequences.target[active]).sum())


def _sizes(chunks: tuple[Chunk, ...] | list[Chunk], admissions: tuple[Admission, ...] | list[Admission]) -> list[int]:
    return [chunk.end for chunk in chunks] + [-1] + [entry.end for entry in admissions]


class _Repricing:
    """Prices the rest of a plan. A shorter chunk may need more pages than a longer one, so it may be cut once more."""

    def __init__(self, view: PlanView, plan: Plan) -> None:
        self._view = view
        self._plan = plan
        quote = view.manager.quote()
        if plan.victims:
            quote.suspend(np.array(plan.victims, dtype=np.int64))
        if len(plan.decodes) and not quote.add(plan.decodes, plan.decode_ends(view.manager.capacity)):
            raise InternalError("decodes that were priced once cannot be priced again")
        self._quote: Quote = quote

    def of(self, chunks: list[Chunk], admissions: list[Admission]) -> Plan:
        """Return the plan with these prefills, as far as they fit."""
        quote, held = self._quote, list(self._plan.held)
        kept_chunks: list[Chunk] = []
        kept: list[Admission] = []
        for chunk in chunks:
            cut = self._fit(chunk.start, chunk.end, partial(self._extend, chunk.row))
            if cut is not None:
                kept_chunks.append(replace(chunk, end=cut))
        for entry in admissions:
            end: int | None = entry.end
            if not entry.waiting.candidate.is_admitted:  # else its pages are reserved already
                end = self._fit(entry.start, entry.end, partial(quote.admit, entry.waiting.candidate))
            if end is None:
                held.append(entry.waiting.request.request_id)
            else:
                kept.append(replace(entry, end=end))
        return replace(self._plan, quote=quote, chunks=tuple(kept_chunks), admissions=tuple(kept), held=tuple(held))

    def _extend(self, row: int, end: int) -> bool:
        return self._quote.add(np.array([row], dtype=np.int64), np.array([end], dtype=np.int64))

    def _fit(self, start: int, end: int, price: Callable[[int], bool]) -> int | None:
        return fit_chunk(start, end, self._view.align, price=price, can_wait=lambda at: False)
