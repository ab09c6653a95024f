"""A plan as a row for the other ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.base import Int64Array
from tidegate.scheduling import WIDTH, Column, Plan, RankLoad

MICROSECONDS = 1_000_000
"""In a second."""


class LastStep(NamedTuple):
    """What a rank did in the step before: tokens, microseconds, requests that ended."""

    num_tokens: int = 0
    step_us: int = 0
    num_finished: int = 0


def plan_row(plan: Plan, load: RankLoad, last: LastStep, *, now: float, has_work: bool) -> Int64Array:
    """Return the row of a plan. What travels besides, bytes and the digest, is not the rank's to fill in."""
    num_decode_tokens, oldest = plan.num_decode_tokens, load.oldest_arrival_s
    row = np.zeros(WIDTH, dtype=np.int64)
    row[_PLACES] = (
        len(plan.chunks) + len(plan.admissions),
        sum(entry.is_first for entry in plan.admissions),
        len(plan.decodes),
        plan.num_sequences == 0,
        plan.num_tokens - num_decode_tokens,
        num_decode_tokens,
        load.prefill_tokens,
        load.waiting,
        0 if oldest is None else max(int((now - oldest) * MICROSECONDS), 0),
        last.num_finished,
        load.seats,
        last.step_us,
        not plan.is_short,
        plan.most_held_passes,
        has_work,
        load.active,
        load.retiring,
        last.num_tokens,
    )
    return row


_PLACES = np.array(
    [
        Column.CTX,
        Column.FIRST,
        Column.GEN_REAL,
        Column.GEN_PAD,
        Column.CTX_TOKENS,
        Column.DECODE_TOKENS,
        Column.BACKLOG_TOKENS,
        Column.WAITING,
        Column.OLDEST_WAIT_US,
        Column.FINISHED,
        Column.FREE_SEATS,
        Column.LAST_STEP_US,
        Column.FITS,
        Column.HELD_PASSES,
        Column.HAS_WORK,
        Column.ACTIVE,
        Column.RETIRING,
        Column.LAST_TOKENS,
    ]
)
