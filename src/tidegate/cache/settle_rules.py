"""Where an open step may settle. Checks only; nothing is changed but rows marked for the closer look."""

from __future__ import annotations

from tidegate.base import BoolArray, Closed, Int64Array, Retention, StateError
from tidegate.cache.ranges import scratch, stale
from tidegate.cache.sequences import Mode, SequenceTable
from tidegate.cache.tables import GroupRows


class SettleRules:
    """Refuses settles whose positions the pages do not hold."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable) -> None:
        self._sequences = sequences
        self._windowed = [r for r in rows if r.group.retention is Retention.WINDOW]
        self._has_state = any(r.group.retention is Retention.STATE for r in rows)
        self._rewind = rows[0].group.rule.max_rewind_len

    def is_plain_short(self, rows: Int64Array, histories: Int64Array) -> BoolArray:
        """Tell which rows settle short, legally, of a plain decode step, the only one open.

        Such a row has an event ahead, hence no scratch and all of its prompt settled, and nobody else sees a page that
        its step writes.
        """
        sequences = self._sequences
        mode = sequences.mode[rows]
        plain: BoolArray = (histories >= sequences.history[rows]) & (histories < sequences.ends[0][rows])
        plain &= (sequences.event[rows] != 0) & (sequences.num_open[rows] == 1)
        plain &= (mode == Mode.READY) | (mode == Mode.FULL)
        if self._has_state:
            plain[:] = False
        return plain

    def check(self, rows: Int64Array, histories: Int64Array) -> None:
        """Refuse misuse; rows that settle short of their step get the closer look."""
        sequences = self._sequences
        for row, history in zip(rows.tolist(), histories.tolist(), strict=True):
            if sequences.mode[row] == Mode.FREE:
                raise Closed(f"row {row} is not an active sequence")
            if not sequences.num_open[row]:
                raise StateError(f"row {row} has no dispatched step to settle")
            begin, end = int(sequences.history[row]), int(sequences.ends[0, row])
            if not begin <= history <= end:
                raise StateError(f"row {row} cannot settle at {history}: its oldest open step spans {begin} … {end}")
            self.check_settle(row, history)
        for row, history in zip(rows.tolist(), histories.tolist(), strict=True):
            if history != sequences.ends[0, row]:
                sequences.event[row] = 0

    def check_settle(self, row: int, history: int) -> None:
        """A step whose scratch holds part of what would be kept cannot end there."""
        sequences = self._sequences
        begin, end = int(sequences.history[row]), int(sequences.ends[0, row])
        if history == end:
            return
        if sequences.num_open[row] > 1 and history < end - self._rewind:
            raise StateError(
                f"row {row} cannot settle at {history}: later steps are open, and only {self._rewind} positions of "
                f"the one ending at {end} can be taken back"
            )
        if history == begin:
            return
        if self._has_state:
            raise StateError(f"row {row} has state layers: its step can settle at {begin} or {end} only")
        settled = self.settled_at(row, history)
        if not sequences.scratch_ok[row, 0]:
            return
        for group in self._windowed:
            block = group.group.block_tokens
            first, last = scratch(sequences.steps(row)[0].begin, end, group.group.rule)
            kept = min(last, -(-history // block))
            gone = stale(settled, group.group.rule)
            if first < kept and not (gone[0] <= first and kept <= gone[1]):
                raise StateError(
                    f"row {row} cannot settle at {history}: blocks {first} … {kept - 1} of group "
                    f"{group.group.group_id} were scratch; only its last {self._rewind} positions can be taken back"
                )

    def settled_at(self, row: int, history: int) -> int:
        """Return ``D`` after the oldest open step settles at ``history``."""
        sequences = self._sequences
        settled = int(sequences.settled[row])
        if history == sequences.history[row]:
            return settled
        return max(settled, min(history, int(sequences.ends[0, row]) - self._rewind))
