"""Prices a step without touching anything.

A quote is extended, never summed: pages that several of its sequences lock, share or release are counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.base import BoolArray, Closed, Int32Array, Int64Array, RequestTooLong, StateError
from tidegate.cache.candidate import Candidate
from tidegate.cache.moves import Move, Mover
from tidegate.cache.sequences import Mode, SequenceTable
from tidegate.cache.tables import GroupRows


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows that grow by a plain step: ``crossing`` (places in ``rows``) need blocks ``old[g]`` on, ``counts[g]`` many."""

    rows: Int64Array
    capacities: Int64Array
    crossing: Int64Array
    old: tuple[Int64Array, ...]
    counts: tuple[Int64Array, ...]


class CacheState(Protocol):
    """What a quote reads of the manager."""

    rows: list[GroupRows]
    sequences: SequenceTable
    mover: Mover
    num_pool_groups: int
    plain_growth: int

    @property
    def version(self) -> int:
        """Changes with every mutation."""
        ...


class Quote:
    """A private tally over the cache as it was when the quote was made; reserving it later raises ``StateError``."""

    def __init__(self, state: CacheState, refresh: Callable[[Candidate], None]) -> None:
        self.version = state.version
        self.steps: list[Growth | Move] = []
        self._candidates: set[int] = set()
        self.victims: list[int] = []
        self.needs = [0] * state.num_pool_groups
        self.shortage: tuple[int, ...] = tuple(self.needs)
        self._state = state
        self._refresh = refresh
        self._supply: list[int] | None = None
        self._taken: BoolArray | None = None
        self._locked: dict[int, BoolArray] = {}
        self._unlocked: dict[int, Int32Array] = {}
        self._num_new = 0

    @property
    def supply(self) -> tuple[int, ...]:
        """Pages per pool group that this quote could still hand out."""
        return tuple(s - n for s, n in zip(self._supplies(), self.needs, strict=True))

    def add(self, rows: Int64Array, capacities: Int64Array) -> bool:
        """Let each of these distinct rows' next open step end at ``capacities``; all of them, or False and nothing."""
        rows = np.asarray(rows, np.int64)
        capacities = np.asarray(capacities, np.int64)
        ready = self._check(rows, capacities)
        sequences = self._state.sequences
        capacity, border = sequences.capacity[rows], sequences.border[rows]
        above = capacities > border
        if ready is None and not above.any():
            return self._accept([Growth(rows, capacities, _NONE, (), ())], None, rows)
        plain = (border >= 0) & (capacities - capacity <= self._state.plain_growth)
        if ready is not None:
            plain &= ready
        if plain.all():
            growth, needs = self._growth(rows, capacities, capacity, above)
            return self._accept([growth], needs, rows)
        steps: list[Growth | Move] = []
        needs = [0] * self._state.num_pool_groups
        for row, end, is_plain in zip(rows.tolist(), capacities.tolist(), plain.tolist(), strict=True):
            one = np.array([row]), np.array([end])
            if is_plain:
                growth, extra = self._growth(*one, sequences.capacity[one[0]], one[1] > sequences.border[one[0]])
                steps.append(growth)
            else:
                move = self._row_move(row, end)
                steps.append(move)
                extra = move.needs(self._state.rows, self._state.num_pool_groups)
            needs = [a + b for a, b in zip(needs, extra, strict=True)]
        return self._accept(steps, needs, rows)

    def admit(self, candidate: Candidate, capacity: int) -> bool:
        """Start a waiting or suspended sequence whose first step ends at ``capacity``, or False and nothing.

        At its reused length it holds what it matched and has no step yet.
        """
        self._refresh(candidate)
        match = candidate.match
        state = self._state
        if candidate.is_admitted or id(candidate) in self._candidates:
            raise StateError("the candidate is admitted already")
        if capacity < match.reused:
            raise StateError(f"capacity={capacity} must be at least the reused {match.reused} tokens")
        if capacity > state.sequences.max_seq_len:
            raise RequestTooLong(f"capacity={capacity} is above max_seq_len={state.sequences.max_seq_len}")
        if self._num_new >= len(state.sequences.free_rows):
            self.shortage = tuple([0] * state.num_pool_groups)
            return False
        move = state.mover.admit(candidate, capacity)
        needs = move.needs(state.rows, state.num_pool_groups)
        locks = self._newly_locked(move)
        missing = self._missing(needs, locks)
        if any(missing):
            self.shortage = missing
            return False
        self._lock(move)
        supplies = self._supplies()
        for group, number in enumerate(locks):
            supplies[group] -= number
        self.needs = [a + b for a, b in zip(self.needs, needs, strict=True)]
        self.steps.append(move)
        self._candidates.add(id(candidate))
        self._num_new += 1
        return True

    def suspend(self, rows: Int64Array) -> None:
        """Give these rows up to this step: what only they hold becomes supply. They must have no open step."""
        rows = np.asarray(rows, np.int64)
        sequences = self._state.sequences
        self._mark(rows)
        if (sequences.mode[rows] != Mode.READY).any() or sequences.num_open[rows].any():
            raise StateError("a victim must be active, without open steps and outside reservations")
        for row in rows.tolist():
            self.victims.append(row)
            for rows_of in self._state.rows:
                pages = rows_of.pages[row]
                self._release(rows_of, pages[pages >= 0])
                held = rows_of.scratch[row]
                if held is not None:
                    self._release(rows_of, held)

    def accept_move(self, move: Move, row: int) -> bool:
        """Add a move computed elsewhere; False and nothing when pages are short."""
        needs = move.needs(self._state.rows, self._state.num_pool_groups)
        return self._accept([move], needs, np.array([row]))

    # ---- tally

    def _row_move(self, row: int, end: int) -> Move:
        if self._state.sequences.mode[row] == Mode.PLANNED:
            return self._state.mover.retarget(row, end)
        return self._state.mover.extend(row, end)

    def _growth(
        self, rows: Int64Array, capacities: Int64Array, capacity: Int64Array, above: BoolArray
    ) -> tuple[Growth, list[int]]:
        crossing = np.flatnonzero(above)
        old_capacity, new_capacity = capacity[crossing], capacities[crossing]
        needs = [0] * self._state.num_pool_groups
        olds, counts = [], []
        for rows_of in self._state.rows:
            block = rows_of.group.block_tokens
            old = -(-old_capacity // block)
            count = -(-new_capacity // block) - old
            olds.append(old)
            counts.append(count)
            needs[rows_of.group.pool_group] += int(count.sum())
        return Growth(rows, capacities, crossing, tuple(olds), tuple(counts)), needs

    def _accept(self, steps: list[Growth | Move], needs: list[int] | None, rows: Int64Array) -> bool:
        released = False
        if needs is not None:
            for step in steps:
                released |= isinstance(step, Move) and bool(step.release or step.scratch)
            missing = self._missing(needs, None)
            if released and any(missing):
                missing = self._missing_after_release(steps, needs)
            if any(missing):
                self.shortage = missing
                return False
            self.needs = [a + b for a, b in zip(self.needs, needs, strict=True)]
        if released:
            self._release_moves(steps)
        self._mark(rows)
        self.steps.extend(steps)
        return True

    def _missing(self, needs: list[int], locks: list[int] | None) -> tuple[int, ...]:
        supplies = self._supplies()
        return tuple(
            max(0, self.needs[i] + need + (locks[i] if locks else 0) - supplies[i]) for i, need in enumerate(needs)
        )

    def _missing_after_release(self, steps: list[Growth | Move], needs: list[int]) -> tuple[int, ...]:
        """Price moves that also release: on copies, since a refusal must leave the tally as it was."""
        supplies, unlocked = self._supplies().copy(), {g: a.copy() for g, a in self._unlocked.items()}
        self._release_moves(steps)
        missing = self._missing(needs, None)
        self._supply, self._unlocked = supplies, unlocked
        return missing

    def _release_moves(self, steps: list[Growth | Move]) -> None:
        for move in steps:
            if not isinstance(move, Move):
                continue
            for group, (begin, end) in move.release:
                rows_of = self._state.rows[group]
                self._release(rows_of, rows_of.pages[move.row, begin:end])
            for group, change in move.scratch:
                held = self._state.rows[group].scratch[move.row]
                if change < 0 and held is not None:
                    self._release(self._state.rows[group], held[change:])

    def _supplies(self) -> list[int]:
        if self._supply is None:
            self._supply = [0] * self._state.num_pool_groups
            for rows_of in self._state.rows:
                pool = rows_of.pool
                self._supply[rows_of.group.pool_group] = pool.num_free + pool.evictable
        return self._supply

    def _release(self, rows_of: GroupRows, pages: Int32Array) -> None:
        """Count pages all of whose locks this quote releases."""
        group = rows_of.group.pool_group
        unlocked = self._unlocked.get(group)
        if unlocked is None:
            unlocked = self._unlocked[group] = np.zeros(len(rows_of.pool.slot), np.int32)
        unlocked[pages] += 1
        self._supplies()[group] += int(np.count_nonzero(unlocked[pages] == rows_of.pool.locks[pages]))

    def _newly_locked(self, move: Move) -> list[int]:
        """Pages per pool group that stop being evictable when this candidate takes its match."""
        numbers = [0] * self._state.num_pool_groups
        if move.candidate is None:
            return numbers
        for rows_of, runs in zip(self._state.rows, move.candidate.match.held, strict=False):
            for _, pages in runs:
                numbers[rows_of.group.pool_group] += len(self._idle(rows_of, pages))
        return numbers

    def _idle(self, rows_of: GroupRows, pages: Int32Array) -> Int32Array:
        """Pages that count as supply now: nobody locks them once this quote's victims are gone, nor does this quote."""
        group = rows_of.group.pool_group
        unlocked, locked = self._unlocked.get(group), self._locked.get(group)
        locks = rows_of.pool.locks[pages]
        if unlocked is not None:
            locks = locks - unlocked[pages]
        idle = pages[locks == 0]
        return idle if locked is None else idle[~locked[idle]]

    def _lock(self, move: Move) -> None:
        if move.candidate is None:
            return
        for rows_of, runs in zip(self._state.rows, move.candidate.match.held, strict=False):
            for _, pages in runs:
                idle = self._idle(rows_of, pages)
                if len(idle):
                    group = rows_of.group.pool_group
                    if group not in self._locked:
                        self._locked[group] = np.zeros(len(rows_of.pool.slot), np.bool_)
                    self._locked[group][idle] = True

    # ---- checks

    def _mark(self, rows: Int64Array) -> None:
        if self._taken is None:
            self._taken = np.zeros(self._state.sequences.num_rows, np.bool_)
        self._taken[rows] = True

    def _check(self, rows: Int64Array, capacities: Int64Array) -> BoolArray | None:
        """Refuse misuse; return which rows append a step, or None when all do."""
        sequences = self._state.sequences
        mode = sequences.mode[rows]
        if self._taken is not None and self._taken[rows].any():
            raise StateError("a row is in this quote already")
        ready = mode == Mode.READY
        good = ready | (mode == Mode.PLANNED)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            row, what = int(rows[at]), Mode(int(mode[at]))
            if what is Mode.FREE:
                raise Closed(f"row {row} is not an active sequence")
            raise StateError(f"row {row} cannot take another open step: it is {what.name.lower()}")
        floor = sequences.capacity[rows]
        floor = np.where(ready, floor, sequences.begins[rows, sequences.num_open[rows] - 1])
        low = capacities < floor
        if low.any():
            at = int(np.flatnonzero(low)[0])
            raise StateError(f"capacity={capacities[at]} of row {rows[at]} is below its last cursor {floor[at]}")
        if len(capacities) and capacities.max() > sequences.max_seq_len:
            raise RequestTooLong(f"capacity={capacities.max()} is above max_seq_len={sequences.max_seq_len}")
        return None if ready.all() else ready


_NONE = np.empty(0, np.int64)
