"""What each rank tells all others before a step: one small fixed row of int64."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tidegate.base import Int64Array


class Column(IntEnum):
    """Columns of the gathered rows ``[ranks, WIDTH]``.

    ``CTX`` planned prefills, of them ``FIRST`` first chunks, which alone may be held; ``GEN_REAL`` planned decodes,
    ``GEN_PAD`` padding entries; ``CTX_TOKENS`` and ``DECODE_TOKENS`` of the plan; ``BACKLOG_TOKENS`` prompt tokens not
    yet computed, waiting or running; ``WAITING`` requests and ``OLDEST_WAIT_US`` of the foremost; ``FINISHED`` in the
    last step; ``FREE_SEATS``; ``LAST_STEP_US``; ``FITS`` whether the planned decodes can run; ``HELD_PASSES`` the most
    passes any first chunk of this plan was held already; ``HAS_WORK`` whether anything waits, runs or is in flight;
    ``INBOX_BYTES`` of new requests (rank 0) and ``OUTBOX_BYTES`` of outputs for rank 0; ``DIGEST`` of all rows and
    decisions before this one; ``ACTIVE`` sequences, and ``RETIRING`` ones that have ended but for their last open step;
    ``LAST_TOKENS`` that the last step computed; ``MOVED``, a hash of the id of a waiting request that the rank hands
    over, 0 for none, and ``MOVED_TO``, the rank that takes it.
    """

    CTX = 0
    FIRST = 1
    GEN_REAL = 2
    GEN_PAD = 3
    CTX_TOKENS = 4
    DECODE_TOKENS = 5
    BACKLOG_TOKENS = 6
    WAITING = 7
    OLDEST_WAIT_US = 8
    FINISHED = 9
    FREE_SEATS = 10
    LAST_STEP_US = 11
    FITS = 12
    HELD_PASSES = 13
    HAS_WORK = 14
    INBOX_BYTES = 15
    OUTBOX_BYTES = 16
    DIGEST = 17
    ACTIVE = 18
    RETIRING = 19
    LAST_TOKENS = 20
    MOVED = 21
    MOVED_TO = 22


WIDTH = len(Column)


def rank_row(**columns: int) -> Int64Array:
    """Return a row from columns by lower-case name; those not given are 0."""
    row = np.zeros(WIDTH, dtype=np.int64)
    for name, value in columns.items():
        row[Column[name.upper()]] = value
    return row
