"""Page tables in the shapes kernels want: the arena itself, per-layer tables while scratch is live, CSR on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.base import BAD_PAGE, Int32Array, Int64Array, StateError
from tidegate.cache.groups import BufferTable
from tidegate.cache.ranges import Range, ceil_div
from tidegate.cache.tables import GroupRows


@dataclass(frozen=True, slots=True)
class CsrTables:
    """Ragged tables: sequence ``i`` has slots ``indices[indptr[i]:indptr[i+1]]``, the last ``last_page_len[i]`` full.

    All int32. Only blocks that own a page are listed; ``first_block[i]`` is the ordinal of the first listed one, so a
    windowed sequence with sinks is not representable and is refused.
    """

    indptr: Int32Array
    indices: Int32Array
    last_page_len: Int32Array
    first_block: Int32Array


def per_layer(
    rows_of: GroupRows,
    buffers: Sequence[BufferTable],
    step: tuple[Int64Array, Int64Array],
    ranges: Sequence[tuple[int, Range]],
) -> Int32Array:
    """Absolute sub-page indices int32 ``[num_buffers, n, width]``; scratch block ``i`` is in slot ``ids[i // k]``."""
    step_rows, ends = step
    block = rows_of.group.block_tokens
    width = max(1, ceil_div(int(ends.max()), block))
    stride, offset, scratch_stride, scratch_offset = rows_of.buffer_columns(buffers)
    table: Int32Array = np.full((len(buffers), len(step_rows), width), BAD_PAGE, np.int32)
    # Windows leave most of a long row empty: only columns in which some row owns a page are converted.
    slots = rows_of.slots[step_rows, :width]
    used = np.flatnonzero((slots >= 0).any(axis=0))
    if len(used):
        part = slots[:, used]
        places = part[None] * stride[:, :, None] + offset[:, :, None]
        table[:, :, used] = np.where(part >= 0, places, np.int32(BAD_PAGE))
    factor = rows_of.group.scratch_per_slot
    for i, (begin, end) in ranges:
        order = np.arange(end - begin, dtype=np.int32)
        ids = rows_of.scratch_slots(int(step_rows[i]))[order // factor]
        table[:, i, begin:end] = ids * stride + order % factor * scratch_stride + scratch_offset
    return table


def csr(rows_of: GroupRows, step_rows: Int64Array, ends: Int64Array) -> CsrTables:
    """Return ragged tables of one group for sequences that hold ``ends`` tokens each."""
    if np.count_nonzero(rows_of.num_scratch[step_rows]):
        raise StateError("a sequence has live scratch, which lies elsewhere for each layer: CSR cannot say where")
    block = rows_of.group.block_tokens
    width = max(1, ceil_div(int(ends.max(initial=1)), block))
    slots = rows_of.slots[step_rows, :width]
    owned = slots >= 0
    counts = owned.sum(axis=1)
    first = np.where(counts > 0, owned.argmax(axis=1), 0)
    last = -(-ends // block)
    if (counts != np.where(counts > 0, last - first, 0)).any():
        raise StateError("a sequence owns blocks in several runs (sinks and window): CSR cannot say where they are")
    indptr = np.zeros(len(step_rows) + 1, np.int32)
    np.cumsum(counts, out=indptr[1:])
    last_page_len = np.where(counts > 0, ends - (last - 1) * block, 0).astype(np.int32)
    return CsrTables(indptr, slots[owned], last_page_len, first.astype(np.int32))
