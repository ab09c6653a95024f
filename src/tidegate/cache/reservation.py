"""Takes everything a quote priced, or nothing; can give it all back until the engine may have written.

Evicted pages and a victim's pages only lend their slots: nothing of the tree or of a victim changes until dispatch, so
undoing is returning loans, whatever else happened in between.
"""

from __future__ import annotations

from types import TracebackType

import numpy as np

from tidegate.base import GroupTables, Int64Array, StateError
from tidegate.cache.candidate import Candidate
from tidegate.cache.moves import Move
from tidegate.cache.quote import Growth, Quote
from tidegate.cache.sequences import NOT_READY, Mode
from tidegate.cache.step_changes import ReservationHost, StepChanges
from tidegate.cache.step_pages import PageCopies, StepPages


class Reservation:
    """A context manager over one quote; rolls back unless ``keep()`` was called.

    ``rows[i]`` computes positions ``starts[i]:ends[i]`` in this step, in the order of the quote's calls. ``copies`` and
    ``snapshots`` are the page copies of the step; ``suspended`` is filled at dispatch. ``num_pages`` it took per pool
    group.
    """

    def __init__(self, host: ReservationHost, quote: Quote) -> None:
        self._host = host
        self._victims = quote.victims
        self._state = "open"
        for row in self._victims:
            host.publisher.close_leaf(row)
        self._changes = StepChanges(host)
        self._changes.apply(quote.steps, quote.tally.needs, quote.victims)
        host.touch()
        self.admitted = self._changes.admitted
        self.suspended: list[Candidate] = []
        self.num_pages: tuple[int, ...] = tuple(quote.tally.needs)
        self.rows, self.starts, self.ends = _order(quote.steps)
        changes = self._changes
        self.copies = self._page_copies(changes.copies) if changes.copies else ()
        self.snapshots = self._page_copies(changes.snapshots) if changes.snapshots else ()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_open:
            self.rollback()

    @property
    def is_open(self) -> bool:
        """Whether it can still be kept or rolled back."""
        return self._state in ("open", "dispatched")

    @property
    def is_undispatched(self) -> bool:
        """Whether its rows may not be touched by others yet."""
        return self._state == "open"

    @property
    def moved(self) -> Int64Array:
        """Rows whose cursors an undo would put back as they were."""
        return np.array(self._changes.moved_rows, np.int64)

    @property
    def touched(self) -> Int64Array:
        """Its rows and victims."""
        return np.concatenate([self.rows, np.array(self._victims, np.int64)])

    def dispatch(self) -> StepPages:
        """Make it final for the cache: from here the engine may write. Return the step's tables and copies."""
        self.commit()
        tables = self.tables(self.rows, self.starts, self.ends)
        return StepPages(self.rows, self.starts, self.ends, tables, self.copies, self.snapshots)

    def commit(self) -> None:
        """Do what ``dispatch`` does, without the tables: for one part of a joint step."""
        if self._state != "open":
            raise StateError(f"cannot dispatch a reservation that is {self._state}")
        self._commit()
        self._state = "dispatched"

    def tables(self, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> tuple[GroupTables, ...]:
        """Return the page tables of a step over these rows of the cache."""
        return self._host.step_tables(rows, starts, ends)

    def keep(self) -> None:
        """Keep what was reserved. Without a dispatch the step stays planned and can be retargeted; ``copies`` are then
        the caller's to do before anything is written."""
        if self._state == "open":
            self._commit()
            sequences = self._host.sequences
            planned = self.rows[sequences.num_open[self.rows] > 0]
            sequences.mode[planned], sequences.border[planned] = Mode.PLANNED, NOT_READY
            sequences.event[planned] = 0
        elif self._state != "dispatched":
            raise StateError(f"cannot keep a reservation that is {self._state}")
        self._state = "kept"
        self._host.forget_reservation(self)

    def rollback(self) -> None:
        """Give everything back. Before dispatch all is as it was; after it, live sequences are."""
        if not self.is_open:
            raise StateError(f"cannot roll back a reservation that is {self._state}")
        self._changes.undo(dispatched=self._state == "dispatched")
        self._state = "rolled back"
        self._host.forget_reservation(self)
        self._host.touch()

    def _commit(self) -> None:
        host, lender = self._host, self._changes.lender
        lender.settle()
        for group, page in self._changes.pins:
            host.rows[group].pool.unlock(np.array([page], np.int32))
        for row in self._victims:
            self.suspended.append(host.lives.suspend(row))
        lender.end()
        for candidate, _ in self.admitted:
            host.lives.count_admission(candidate)
        host.touch()

    def _page_copies(self, copies: list[tuple[int, int, int]]) -> tuple[PageCopies, ...]:
        by_pool: dict[int, list[tuple[int, int]]] = {}
        for group, source, target in copies:
            by_pool.setdefault(self._host.rows[group].pool_group, []).append((source, target))
        result = []
        for pool_group, pairs in by_pool.items():
            pages = np.array(pairs, np.int32)
            slot = self._host.pools[pool_group].slot
            result.append(PageCopies(pool_group, slot[pages[:, 0]], slot[pages[:, 1]]))
        return tuple(result)


def _order(steps: list[Growth | Move]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rows, starts and ends of a step, in the order of the quote's calls."""
    if len(steps) == 1 and isinstance(steps[0], Growth):
        return steps[0].rows, steps[0].starts, steps[0].capacities
    parts = [
        (step.rows, step.starts, step.capacities)
        if isinstance(step, Growth)
        else (np.array([step.row]), np.array([step.start]), np.array([step.end]))
        for step in steps
    ]
    if len(parts) == 1:
        return parts[0]
    rows, starts, ends = zip(*parts, strict=True) if parts else ([_EMPTY], [_EMPTY], [_EMPTY])
    return np.concatenate(rows), np.concatenate(starts), np.concatenate(ends)


_EMPTY = np.empty(0, np.int64)
