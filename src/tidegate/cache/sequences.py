"""Active sequences as a structure of arrays: cursors, tokens, what is published.

Sole writer of histories, capacities and open steps is the reservation and ``advance``; everybody else reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidegate.base import Int32Array, Int64Array, StateError
from tidegate.cache.door import RowDoor
from tidegate.cache.ranges import OpenStep, ceil_div

if TYPE_CHECKING:
    from tidegate.cache.nodes import Node

ZERO, ONE = np.array(0), np.array(1)
"""As arrays: numpy takes longer to convert a Python number than to add it to all rows."""

NEVER = 1 << 62
"""A position no sequence reaches."""

NOT_READY = -NEVER
"""The border of a row that needs a closer look whatever is asked of it."""


class Cursors(NamedTuple):
    """Where one sequence stands: ``H``, ``D`` and its open steps, oldest first."""

    history: int
    settled: int
    steps: list[OpenStep]

    @property
    def capacity(self) -> int:
        """End of the last open step, or the history."""
        return self.steps[-1].end if self.steps else self.history


class Mode:
    """What may happen to a row next. Plain numbers: a look-up in an ``IntEnum`` costs as much as an array operation."""

    FREE: Final = 0
    READY: Final = 1
    """The next quote appends an open step."""
    PLANNED: Final = 2
    """Its last open step was reserved and kept without being dispatched: the next quote retargets it."""
    FULL: Final = 3
    """As many open steps as allowed."""


class SequenceTable:
    """Columns indexed by row. ``tokens`` is int32 ``[num_rows, max_seq_len + slack]``, known up to ``known``.

    ``border`` is the largest capacity that needs no closer look, ``NOT_READY`` unless the row is; ``event`` the least
    history at which settling is more than moving cursors, 0 when it always is; ``ends[i]`` are where the rows' i-th
    open steps end, -1 where there is none.
    """

    def __init__(
        self, num_rows: int, max_seq_len: int, max_open: int, smallest_block: int, max_rewind_len: int
    ) -> None:
        self.num_rows = num_rows
        self._smallest_block = smallest_block
        self.max_seq_len = max_seq_len
        self.max_open = max_open
        self.door = RowDoor(num_rows)
        self.mode = np.zeros(num_rows, np.int8)
        self.capacity = np.zeros(num_rows, np.int64)
        self.border = np.full(num_rows, NOT_READY, np.int64)
        self.num_open = np.zeros(num_rows, np.int64)
        self.history = np.zeros(num_rows, np.int64)
        # Without drafts D is H: one column is both.
        self.settled = np.zeros(num_rows, np.int64) if max_rewind_len else self.history
        self.known = np.zeros(num_rows, np.int64)
        self.event = np.zeros(num_rows, np.int64)
        self.ends = np.full((max_open, num_rows), -1, np.int64)
        self.begins = np.full((num_rows, max_open), -1, np.int64)
        """Where an open step begins when that is not the previous cursor, else -1."""
        self.scratch_ok = np.ones((num_rows, max_open), np.bool_)
        self.prompt_len = np.zeros(num_rows, np.int64)
        self.given = np.zeros(num_rows, np.int64)
        """How many tokens are still those of the candidate that the row began as."""
        self.published = np.zeros(num_rows, np.int64)
        self.next_publish = np.full(num_rows, NEVER, np.int64)
        self.publish_limit = np.full(num_rows, NEVER, np.int64)
        self.next_stale = np.full(num_rows, NEVER, np.int64)
        self.last_checkpoint = np.zeros(num_rows, np.int64)
        self.retains = False
        """Whether any sequence was ever started with a retention of its own."""
        self.retention = np.zeros(num_rows, np.int64)
        self.generation = np.zeros(num_rows, np.int64)
        self.stride = max_seq_len + 8
        self._stride = np.array(self.stride)
        self._round_up = np.array(smallest_block - 1)
        self.block, self.limit = np.array(smallest_block), np.array(max_seq_len)
        """The smallest block and the longest sequence, as arrays."""
        self.tokens = np.zeros((num_rows, self.stride), np.int32)
        self.flat_tokens = self.tokens.reshape(-1)
        # Rows as they come through the door are never written to: what follows from them need not be computed twice.
        self._placed_rows = self._row_starts = np.empty(0, np.int64)
        self.leaf: list[Node | None] = [None] * num_rows
        self.attach: list[Node | None] = [None] * num_rows
        self.free_rows = list(range(num_rows - 1, -1, -1))

    def steps(self, row: int) -> list[OpenStep]:
        """Return a row's open steps, oldest first."""
        count = int(self.num_open[row])
        steps: list[OpenStep] = []
        if not count:
            return steps
        begin = int(self.history[row])
        for held, end, flag in zip(
            self.begins[row, :count].tolist(),
            self.ends[:count, row].tolist(),
            self.scratch_ok[row].tolist(),
            strict=False,
        ):
            steps.append(OpenStep(begin if held < 0 else held, end, flag))
            begin = end
        return steps

    def cursors(self, row: int) -> Cursors:
        """Return where a row stands."""
        return Cursors(int(self.history[row]), int(self.settled[row]), self.steps(row))

    def set_cursors(self, row: int, cursors: Cursors) -> None:
        """Put a row where ``cursors`` say; its mode, border and event are the caller's to set."""
        count = len(cursors.steps)
        self.history[row] = previous = cursors.history
        self.settled[row] = cursors.settled
        self.num_open[row] = count
        for i, step in enumerate(cursors.steps):
            self.begins[row, i] = -1 if step.begin == previous else step.begin
            self.ends[i, row] = previous = step.end
            self.scratch_ok[row, i] = step.scratch
        if count < self.max_open:
            self.begins[row, count:] = self.ends[count:, row] = -1
            self.scratch_ok[row, count:] = True
        self.capacity[row] = cursors.capacity

    def border_of(self, capacity: Int64Array) -> Int64Array:
        """Return the border of ready rows that own all their blocks up to ``capacity``."""
        border: Int64Array = np.minimum((capacity + self._round_up) // self.block * self.block, self.limit)
        return border

    def border_after(self, capacity: int) -> int:
        """``border_of`` one row."""
        return min(ceil_div(capacity, self._smallest_block) * self._smallest_block, self.max_seq_len)

    def active_rows(self) -> Int64Array:
        """Return the rows in use, ascending."""
        return np.flatnonzero(self.mode)

    def take_row(self) -> int:
        """Take a free row; the caller has checked that there is one."""
        row = self.free_rows.pop()
        self.generation[row] += 1
        return row

    def clear_rows(self, rows: Int64Array) -> None:
        """Forget sequences; their pages have been dealt with."""
        for column in (self.mode, self.history, self.settled, self.num_open, self.capacity):
            column[rows] = 0
        self.border[rows] = NOT_READY
        self.ends[:, rows] = -1
        self.begins[rows] = -1
        self.scratch_ok[rows] = True
        leaf, attach, numbers = self.leaf, self.attach, rows.tolist()
        for row in numbers:
            leaf[row] = attach[row] = None
        self.free_rows += numbers

    def append_tokens(self, rows: Int64Array, tokens: Int32Array) -> None:
        """Append known tokens, int32 ``[n]`` or ``[n, m]`` where trailing -1 marks none."""
        num_tokens = np.count_nonzero(tokens >= ZERO)
        if not num_tokens:
            return
        known = self.known[rows]
        if rows is not self._placed_rows:
            self._placed_rows, self._row_starts = rows, rows * self.stride
        if tokens.ndim == 1 and num_tokens == len(tokens) and np.count_nonzero(known >= self._stride) == 0:
            self.flat_tokens[self._row_starts + known] = tokens
            known += ONE
            self.known[rows] = known
            return
        places = self._row_starts
        columns = tokens[:, None] if tokens.ndim == 1 else tokens
        if (known + np.count_nonzero(columns >= 0, axis=1) > self.stride).any():
            raise StateError(f"tokens: a row would know more than max_seq_len={self.max_seq_len} of them")
        for column in columns.T:
            have = column >= 0
            self.flat_tokens[places[have] + known[have]] = column[have]
            known += have
        self.known[rows] = known
