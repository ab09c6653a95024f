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
    """Return the plan that a decision leaves; the plan itself when that takes nothing away. Changes nothing."""
    left = None if decision.max_tokens is None else max(decision.max_tokens - plan.num_decode_tokens, 0)
    chunks: list[Chunk] = []
    admissions: list[Admission] = []
    held: list[str] = []
    holds_all = decision.hold and decision.holds_all_chunks
    for chunk in () if holds_all else plan.chunks:
        end = _cut(chunk.start, chunk.end, left, view.align)
        if end == chunk.start:  # a running prefill goes on, if only by a block
            end = min(chunk.start + view.align - chunk.start % view.align, chunk.end)
        chunks.append(replace(chunk, end=end))
        left = None if left is None else max(left - (end - chunk.start), 0)
    for entry in plan.admissions:
        is_held = decision.hold and (entry.is_first or holds_all)
        end = entry.start if is_held else _cut(entry.start, entry.end, left, view.align)
        if end == entry.start:
            held.append(entry.waiting.request.request_id)
            continue
        admissions.append(replace(entry, end=end))
        left = None if left is None else max(left - (end - entry.start), 0)
    if _sizes(plan.chunks, plan.admissions) == _sizes(chunks, admissions):
        return plan
    return _Repricing(view, replace(plan, held=plan.held + tuple(held))).of(chunks, admissions)


def without_first_chunks(plan: Plan) -> Plan:
    """Return the plan without the admissions that may be held, for a caller that reserved each of them apart.

    Its quote still holds them and must not be reserved.
    """
    held = tuple(entry.waiting.request.request_id for entry in plan.admissions if entry.is_first)
    kept = tuple(entry for entry in plan.admissions if not entry.is_first)
    return replace(plan, admissions=kept, held=plan.held + held) if held else plan


def base_quote(view: PlanView, plan: Plan) -> Quote:
    """Price a plan's victims, decodes and chunks, without its admissions."""
    return _Repricing(view, plan).of(list(plan.chunks), []).quote


def _cut(start: int, end: int, left: int | None, align: int) -> int:
    return end if left is None else chunk_end(start, end, left, align)


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
