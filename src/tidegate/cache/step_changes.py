"""A quoted step applied to the rows, and how to take it back.

Applying cannot fail: the quote has priced it and the lender has the pages. Undoing before dispatch restores every row
exactly; afterwards a row goes back to the cursors before the planned step, and private copies that were made stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tidegate.base import GroupTables, Int32Array, Int64Array, StateError
from tidegate.cache.advance import Settler
from tidegate.cache.candidate import Candidate
from tidegate.cache.groups import STATE_BLOCK
from tidegate.cache.lender import Lender
from tidegate.cache.lives import Lives
from tidegate.cache.moves import Move
from tidegate.cache.publishing import Publisher
from tidegate.cache.quote import CacheState, Growth
from tidegate.cache.sequences import NOT_READY, ONE, Cursors, Mode
from tidegate.cache.tables import GroupRows


class ReservationHost(CacheState, Protocol):
    """What a reservation asks of the cache besides the quote's view."""

    lives: Lives
    settler: Settler
    publisher: Publisher
    pending_snapshots: dict[int, list[tuple[int, dict[int, int]]]]

    def touch(self) -> None:
        """Change the version."""

    def step_tables(self, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> tuple[GroupTables, ...]:
        """Return the page tables of a step."""

    def lender(self) -> Lender:
        """Return a fresh account of loans."""
        ...

    def forget_reservation(self, ended: object) -> None:
        """Take an ended reservation off the open list."""


@dataclass(slots=True)
class _Undo:
    """How to take one applied move back."""

    move: Move
    cursors: Cursors
    mode: int
    placed: list[tuple[int, int, int]] = field(default_factory=list)
    removed: list[tuple[int, tuple[int, int], Int32Array]] = field(default_factory=list)
    swapped: list[tuple[int, int, int]] = field(default_factory=list)
    scratch_added: list[tuple[int, int]] = field(default_factory=list)
    scratch_cut: list[tuple[int, Int32Array]] = field(default_factory=list)
    snapshots: dict[int, int] = field(default_factory=dict)
    dropped_snapshot: tuple[int, dict[int, int]] | None = None


@dataclass(slots=True)
class _GrowthUndo:
    growth: Growth
    border: Int64Array
    placed: list[tuple[int, Int64Array]]


class StepChanges:
    """One reservation's changes. ``pins`` are pages locked until their copies are ordered, ``moved_rows`` the
    rows whose cursors an undo puts back as they were."""

    __slots__ = ("_growths", "_host", "_lender", "_moves", "admitted", "copies", "moved_rows", "pins", "snapshots")

    def __init__(self, host: ReservationHost) -> None:
        self.admitted: list[tuple[Candidate, int]] = []
        self.moved_rows: list[int] = []
        self.pins: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int, int]] = []
        self.snapshots: list[tuple[int, int, int]] = []
        self._host = host
        self._lender = host.lender()
        self._growths: list[_GrowthUndo] = []
        self._moves: list[_Undo] = []

    @property
    def lender(self) -> Lender:
        """The account of pages taken and lent."""
        return self._lender

    def apply(self, steps: list[Growth | Move], needs: list[int], victims: list[int]) -> None:
        """Apply a quote's steps, in order."""
        if len(steps) == 1 and isinstance(steps[0], Growth):
            self._lender.fill(needs, victims)
            self._apply_growth(steps[0])
            return
        for step in steps:
            if isinstance(step, Move) and step.candidate is not None:
                self._lock_match(step)
        for step in steps:
            if isinstance(step, Move):
                self._moves.append(self._take_out(step))
        self._lender.fill(needs, victims)
        moves = iter(self._moves)
        for step in steps:
            if isinstance(step, Move):
                self._apply_move(next(moves))
                self.moved_rows.append(step.row)
            else:
                self._apply_growth(step)

    def undo(self, *, dispatched: bool) -> None:
        """Take everything back, or raise ``StateError`` and nothing when a later open step stands in the way."""
        sequences = self._host.sequences
        later = any((sequences.capacity[u.growth.rows] != u.growth.capacities).any() for u in self._growths)
        if later or any(u.move.row >= 0 and sequences.capacity[u.move.row] != u.move.end for u in self._moves):
            raise StateError("a later open step of these sequences must be rolled back first")
        if any(np.count_nonzero(sequences.num_open[u.growth.rows] == 0) for u in self._growths) or any(
            u.move.cursors.steps and sequences.num_open[u.move.row] == 0 for u in self._moves
        ):
            raise StateError("the step has been settled: it cannot be rolled back any more")
        if not dispatched:
            self._lender.give_back()
        for growth in reversed(self._growths):
            self._undo_growth(growth, dispatched=dispatched)
        for move in reversed(self._moves):
            if dispatched:
                self._abort_move(move)
            else:
                self._undo_move(move)

    def _lock_match(self, move: Move) -> None:
        held = move.candidate.match.held if move.candidate is not None else ()
        for rows, runs in zip(self._host.rows, held, strict=False):
            for _, pages in runs:
                rows.pool.lock(pages)

    def _take_out(self, move: Move) -> _Undo:
        """Remember the row's cursors and take the released pages out of it; they stay locked until commit."""
        sequences = self._host.sequences
        if move.row < 0:
            undo = _Undo(move, _NOWHERE, Mode.FREE)
        else:
            undo = _Undo(move, move.old or sequences.cursors(move.row), int(sequences.mode[move.row]))
        pending = self._host.pending_snapshots.get(move.row)
        if undo.mode == Mode.PLANNED and pending and pending[-1][0] == undo.cursors.capacity:
            undo.dropped_snapshot = pending.pop()
            for group, page in undo.dropped_snapshot[1].items():
                self._lender.release(group, np.array([page], np.int32))
        for group, run in move.release:
            pages = self._host.rows[group].take_run(move.row, run)
            undo.removed.append((group, run, pages))
            self._lender.release(group, pages)
        for group, change in move.scratch:
            if change < 0:
                rows = self._host.rows[group]
                pages = rows.cut_scratch(move.row, int(rows.num_scratch[move.row]) + change)
                undo.scratch_cut.append((group, pages))
                self._lender.release(group, pages)
        return undo

    def _apply_growth(self, growth: Growth) -> None:
        sequences, rows = self._host.sequences, growth.rows
        placed: list[tuple[int, Int64Array]] = []
        border = _EMPTY
        if len(growth.crossing):
            crossing = rows[growth.crossing]
            border = sequences.border[crossing]
            if growth.counts:
                _place_blocks(self._host.rows, self._lender, (growth, crossing), placed)
                sequences.border[crossing] = sequences.border_of(growth.capacities[growth.crossing])
            else:
                self._place_one_block(crossing, growth.old[0], placed)
                sequences.border[crossing] = np.minimum(border + sequences.block, sequences.limit)
        num_open = sequences.num_open[rows]
        if np.count_nonzero(num_open) == 0:
            sequences.ends[0][rows] = growth.capacities
            last = 1
        else:
            sequences.ends[num_open, rows] = growth.capacities
            last = int(num_open.max()) + 1
        sequences.capacity[rows] = growth.capacities
        num_open += ONE
        sequences.num_open[rows] = num_open
        if last == sequences.max_open:
            full = rows[num_open == last]
            sequences.mode[full], sequences.border[full] = Mode.FULL, NOT_READY
        self._growths.append(_GrowthUndo(growth, border, placed))

    def _place_one_block(self, crossing: Int64Array, blocks: Int64Array, placed: list[tuple[int, Int64Array]]) -> None:
        index = _EMPTY
        for group, rows_of in enumerate(self._host.rows):
            if rows_of.block_tokens != STATE_BLOCK:
                if not placed:
                    index = crossing * rows_of.stride + blocks
                rows_of.put(index, *self._lender.take_with_slots(rows_of.pool_group, len(index)))
                placed.append((group, index))

    def _apply_move(self, undo: _Undo) -> None:
        move, host = undo.move, self._host
        sequences = host.sequences
        if move.candidate is not None:
            move.row = sequences.take_row()
            move.candidate.is_admitted = True
            for rows, runs in zip(host.rows, move.candidate.match.held, strict=False):
                for first, pages in runs:
                    rows.put_run(move.row, (first, first + len(pages)), pages)
            self.admitted.append((move.candidate, move.row))
        row = move.row
        for group, run in move.acquire:
            rows = host.rows[group]
            rows.put_run(row, run, *self._lender.take_with_slots(rows.pool_group, run[1] - run[0]))
            undo.placed.append((group, run[0], run[1]))
        for group, block in move.copies:
            self._private_copy(undo, group, block)
        for group, change in move.scratch:
            if change > 0:
                rows = host.rows[group]
                rows.add_scratch(row, self._lender.take(rows.group.pool_group, change))
                undo.scratch_added.append((group, change))
        for group in move.snapshots:
            page = int(self._lender.take(host.rows[group].group.pool_group, 1)[0])
            undo.snapshots[group] = page
            self.snapshots.append((group, int(host.rows[group].pages[row, 0]), page))
        if move.snapshots:
            host.pending_snapshots.setdefault(row, []).append((move.end, undo.snapshots))
        if move.candidate is not None:
            host.lives.start(row, move.candidate)
        self._set_cursors(row, move.cursors, Mode.READY if len(move.cursors.steps) < sequences.max_open else Mode.FULL)

    def _private_copy(self, undo: _Undo, group: int, block: int) -> None:
        rows = self._host.rows[group]
        source = int(rows.pages[undo.move.row, block])
        target = self._lender.take(rows.group.pool_group, 1)
        rows.swap_run(undo.move.row, block, target)
        undo.swapped.append((group, block, source))
        self.pins.append((group, source))
        self.copies.append((group, source, int(target[0])))

    def _set_cursors(self, row: int, cursors: Cursors, mode: int) -> None:
        self._host.sequences.set_cursors(row, cursors)
        self._host.sequences.mode[row] = mode
        self._host.settler.refresh(row)

    def _give(self, group: int, pages: Int32Array, *, dispatched: bool) -> None:
        pool = self._host.rows[group].pool
        if dispatched:
            pool.unlock(pages)
        else:
            pool.discard(pages)

    def _undo_growth(self, undo: _GrowthUndo, *, dispatched: bool) -> None:
        sequences, rows = self._host.sequences, undo.growth.rows
        for group, index in undo.placed:
            self._give(group, self._host.rows[group].take(index), dispatched=dispatched)
        num_open = sequences.num_open[rows] - 1
        sequences.ends[num_open, rows] = -1
        sequences.num_open[rows] = num_open
        sequences.capacity[rows] = undo.growth.starts
        sequences.border[rows] = sequences.border_of(undo.growth.starts)
        sequences.border[rows[undo.growth.crossing]] = undo.border
        sequences.mode[rows] = Mode.READY

    def _undo_move(self, undo: _Undo) -> None:
        """Before dispatch: exactly as it was."""
        move, host = undo.move, self._host
        row = move.row
        for group, begin, end in undo.placed:
            self._give(group, host.rows[group].take_run(row, (begin, end)), dispatched=False)
        for group, block, source in undo.swapped:
            copy = host.rows[group].pages[row, block : block + 1].copy()
            host.rows[group].swap_run(row, block, np.array([source], np.int32))
            self._give(group, copy, dispatched=False)
        for group, change in undo.scratch_added:
            rows = host.rows[group]
            self._give(group, rows.cut_scratch(row, int(rows.num_scratch[row]) - change), dispatched=False)
        for group, pages in undo.scratch_cut:
            host.rows[group].add_scratch(row, pages)
        for group, run, pages in undo.removed:
            host.rows[group].put_run(row, run, pages)
        self._drop_snapshots(undo, dispatched=False)
        if undo.dropped_snapshot is not None:
            host.pending_snapshots.setdefault(row, []).append(undo.dropped_snapshot)
        if move.candidate is not None:
            move.candidate.is_admitted = False
            host.lives.drop(np.array([row]))
            return
        self._set_cursors(row, undo.cursors, undo.mode)

    def _drop_snapshots(self, undo: _Undo, *, dispatched: bool) -> None:
        for group, page in undo.snapshots.items():
            self._give(group, np.array([page], np.int32), dispatched=dispatched)
        if undo.snapshots:
            self._host.pending_snapshots[undo.move.row].pop()

    def _abort_move(self, undo: _Undo) -> None:
        """After dispatch: back to the cursors before the planned step; private copies made stay."""
        move, host = undo.move, self._host
        row, sequences = move.row, host.sequences
        current = sequences.cursors(row)
        self._drop_snapshots(undo, dispatched=True)
        if move.candidate is not None:
            move.candidate.is_admitted = False
            host.lives.drop(np.array([row]))
            return
        host.settler.move_to(Move(row, current._replace(steps=current.steps[:-1])))
        sequences.mode[row] = Mode.READY
        host.settler.refresh(row)


def _place_blocks(
    rows: list[GroupRows],
    lender: Lender,
    grown: tuple[Growth, Int64Array],
    placed: list[tuple[int, Int64Array]],
) -> None:
    """Hand out any number of blocks to each crossing row."""
    growth, crossing = grown
    for group, rows_of in enumerate(rows):
        old, counts = growth.old[group], growth.counts[group]
        if counts.any():
            index = rows_of.places(crossing, old, counts)
            rows_of.put(index, *lender.take_with_slots(rows_of.pool_group, len(index)))
            placed.append((group, index))


_EMPTY = np.empty(0, np.int64)
_NOWHERE = Cursors(0, 0, [])
