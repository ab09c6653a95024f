"""Page rows: which page and which level-0 slot each block of each active sequence has.

Two arenas per group, written together: page ids (the record) and slots (what kernels read). Entries a dispatched step
reads are only ever replaced by equal content or, once no query needs them, by -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.base import BAD_PAGE, Int32Array, Int64Array
from tidegate.cache.groups import BufferTable, LayerGroup
from tidegate.cache.pages import PagePool
from tidegate.cache.ranges import Range, ceil_div


class OwnedPages(NamedTuple):
    """Pages of several rows, the last blocks first: int64 ``[n, width]``, -1 where there is none."""

    table: Int64Array
    blocks: Int32Array
    """Ordinals of the columns."""

    def spread(self, values: Int64Array) -> Int64Array:
        """Return each row's value for each of its pages, row by row."""
        return np.repeat(values, np.count_nonzero(self.table >= 0, axis=1))

    def pages(self) -> Int64Array:
        """Return the pages row by row."""
        pages: Int64Array = self.table[self.table >= 0]
        return pages


class GroupRows:
    """Rows of one layer group. ``slots`` is int32 ``[num_rows, max_blocks]``, -1 where a block has no page."""

    def __init__(self, group: LayerGroup, pool: PagePool, num_rows: int, max_seq_len: int) -> None:
        self.group = group
        self.block_tokens = group.block_tokens
        self.pool_group = group.pool_group
        self.pool = pool
        self.stride = max(1, ceil_div(max_seq_len, group.block_tokens))
        self.pages = np.full((num_rows, self.stride), BAD_PAGE, np.int32)
        self.slots = np.full((num_rows, self.stride), BAD_PAGE, np.int32)
        self._flat_pages = self.pages.reshape(-1)
        self._flat_slots = self.slots.reshape(-1)
        self.scratch: list[Int32Array | None] = [None] * num_rows
        self.live_scratch = 0
        self.num_scratch = np.zeros(num_rows, np.int64)
        self._columns: tuple[Int32Array, Int32Array, Int32Array, Int32Array] | None = None
        self.owned = 0
        self.peak_owned = 0

    def places(self, rows: Int64Array, first: Int64Array, counts: Int64Array) -> Int64Array:
        """Return the flat positions of ``counts[i]`` blocks from ``first[i]`` on in each row, one after the other."""
        begins = rows * self.stride + first
        if len(rows) == 1:
            return np.arange(begins[0], begins[0] + counts[0])
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        index: Int64Array = np.repeat(begins, counts) + offsets
        return index

    def owned_pages(self, rows: Int64Array, num_tokens: int) -> OwnedPages:
        """Return the pages that rows own of their first ``num_tokens`` tokens."""
        width = max(1, ceil_div(num_tokens, self.block_tokens))
        blocks = np.arange(width - 1, -1, -1, dtype=np.int32)
        return OwnedPages(self.pages[rows, :width][:, ::-1].astype(np.int64), blocks)

    def blank(self, rows: Int64Array, num_tokens: int) -> None:
        """Forget the pages that rows own of their first ``num_tokens`` tokens."""
        width = max(1, ceil_div(num_tokens, self.block_tokens))
        self.pages[rows, :width] = BAD_PAGE
        self.slots[rows, :width] = BAD_PAGE

    def put(self, index: Int64Array, pages: Int32Array, slots: Int32Array) -> None:
        """Write new pages, which lie in ``slots``, at flat positions ``row * stride + block``."""
        self._flat_pages[index] = pages
        self._flat_slots[index] = slots
        self._count(len(pages))

    def put_run(self, row: int, run: Range, pages: Int32Array, slots: Int32Array | None = None) -> None:
        """Write the pages of consecutive blocks, which lie in ``slots``."""
        self.pages[row, run[0] : run[1]] = pages
        self.slots[row, run[0] : run[1]] = self.pool.slot[pages] if slots is None else slots
        self._count(len(pages))

    def take(self, index: Int64Array) -> Int32Array:
        """Blank flat positions and return the pages that were there."""
        pages = self._flat_pages[index]
        self._flat_pages[index] = BAD_PAGE
        self._flat_slots[index] = BAD_PAGE
        self.owned -= len(pages)
        return pages

    def take_run(self, row: int, run: Range) -> Int32Array:
        """Blank consecutive blocks of one row and return their pages."""
        part = self.pages[row, run[0] : run[1]]
        pages = part.copy()
        part[:] = BAD_PAGE
        self.slots[row, run[0] : run[1]] = BAD_PAGE
        self.owned -= len(pages)
        return pages

    def swap_run(self, row: int, first: int, pages: Int32Array) -> None:
        """Replace the pages of owned blocks by others of equal content."""
        self.pages[row, first : first + len(pages)] = pages
        self.slots[row, first : first + len(pages)] = self.pool.slot[pages]

    def add_scratch(self, row: int, pages: Int32Array) -> None:
        """Give a sequence more scratch slots."""
        held = self.scratch[row]
        self.scratch[row] = pages if held is None else np.concatenate([held, pages])
        self.num_scratch[row] += len(pages)
        self.live_scratch += len(pages)
        self._count(len(pages))

    def cut_scratch(self, row: int, keep: int) -> Int32Array:
        """Take scratch slots beyond ``keep`` from a sequence and return their pages."""
        held = self.scratch[row]
        if held is None:
            return np.empty(0, np.int32)
        self.scratch[row] = held[:keep].copy() if keep else None
        self.num_scratch[row] = min(keep, len(held))
        cut = len(held) - min(keep, len(held))
        self.owned -= cut
        self.live_scratch -= cut
        return held[keep:].copy()

    def scratch_slots(self, row: int) -> Int32Array:
        """Return the slots of a sequence's scratch pages, in order."""
        held = self.scratch[row]
        return np.empty(0, np.int32) if held is None else self.pool.slot[held]

    def buffer_columns(self, buffers: Sequence[BufferTable]) -> tuple[Int32Array, Int32Array, Int32Array, Int32Array]:
        """Return sub-pages per slot, sub-page, scratch stride and scratch sub-page of each buffer, int32 ``[n, 1]``."""
        if self._columns is None:
            numbers = [(b.sub_pages, b.sub_page, b.scratch_stride, b.scratch_sub_page) for b in buffers]
            first, second, third, fourth = np.array(numbers, np.int32).T[:, :, None]
            self._columns = first, second, third, fourth
        return self._columns

    def _count(self, added: int) -> None:
        self.owned += added
        if self.owned > self.peak_owned:
            self.peak_owned = self.owned
