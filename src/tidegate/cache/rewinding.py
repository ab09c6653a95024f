"""Going back: positions that were computed are taken back, as far as windows and states reach."""

from __future__ import annotations

import numpy as np

from tidegate.base import Retention, StateError
from tidegate.cache.advance import Settler
from tidegate.cache.moves import Move
from tidegate.cache.ranges import stale
from tidegate.cache.sequences import Cursors


class Rewinder:
    """Moves histories back."""

    def __init__(self, settler: Settler) -> None:
        self._settler = settler
        self._publisher = settler.publisher
        self._sequences = settler.sequences
        self._rows = settler.rows
        self._windowed = [r for r in self._rows if r.group.retention is Retention.WINDOW]
        self._has_state = any(r.group.retention is Retention.STATE for r in self._rows)
        self._unit = settler.publisher.unit

    def rewind(self, row: int, history: int, num_known: int | None) -> None:
        """Take back positions from ``history`` on. The caller has checked that no step is open."""
        sequences = self._sequences
        current, settled = int(sequences.history[row]), int(sequences.settled[row])
        known = int(sequences.known[row])
        keep = min(known, history) if num_known is None else num_known
        if not history <= keep <= known:
            raise StateError(f"num_known={keep} of row {row} must be in [{history}, {known}]")
        if not (settled <= history or self._keeps(row, history)) or history > current:
            raise StateError(
                f"cannot rewind row {row} to {history}: its windows keep what queries at {settled} … {current} read"
            )
        if self._has_state and history not in (0, current) and self._publisher.state_pages(row, history) is None:
            raise StateError(f"cannot rewind row {row} to {history}: its state layers keep no snapshot there")
        if history < sequences.published[row]:
            self._publisher.close_leaf(row)
            published = history // self._unit * self._unit
            sequences.published[row] = published
            if row not in self._publisher.at_end and sequences.publish_limit[row] >= published + self._unit:
                sequences.next_publish[row] = published + self._unit
            self._publisher.reattach(row)
        if self._has_state and 0 < history < current:
            self._restore_state(row, history)
        sequences.last_checkpoint[row] = min(int(sequences.last_checkpoint[row]), history)
        self._settler.move_to(Move(row, Cursors(history, min(settled, history), [])))
        sequences.known[row] = keep
        sequences.given[row] = min(int(sequences.given[row]), keep)
        self._settler.refresh(row)

    def _keeps(self, row: int, history: int) -> bool:
        """Whether no window has given back a block that a query at ``history`` reads."""
        settled = int(self._sequences.settled[row])
        return history >= 0 and all(
            stale(history, group.group.rule) == stale(settled, group.group.rule) for group in self._windowed
        )

    def _restore_state(self, row: int, history: int) -> None:
        """Take the state of a snapshot at ``history`` instead of the row's own."""
        for group, page in (self._publisher.state_pages(row, history) or {}).items():
            rows = self._rows[group]
            held = rows.pages[row, :1].copy()
            taken = np.array([page], np.int32)
            rows.pool.lock(taken)
            rows.swap_run(row, 0, taken)
            rows.pool.unlock(held)
