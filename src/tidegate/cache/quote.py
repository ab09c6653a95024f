"""Prices a step without touching anything.

A quote is extended, never summed: pages that several of its sequences lock, share or release are counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.base import BoolArray, Closed, Int32Array, Int64Array, RequestTooLong, StateError
from tidegate.cache.candidate import Candidate
from tidegate.cache.moves import Move, Mover
from tidegate.cache.pages import PagePool
from tidegate.cache.sequences import Mode, SequenceTable
from tidegate.cache.tables import GroupRows


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows that grow by a plain step from ``starts``: ``crossing`` (places in ``rows``) need ``counts[g]`` blocks from
    ``old[g]`` on. Without ``counts``, each needs the one block ``old[0]`` in every group that grows."""

    rows: Int64Array
    starts: Int64Array
    capacities: Int64Array
    crossing: Int64Array
    old: tuple[Int64Array, ...]
    counts: tuple[Int64Array, ...] = ()


class CacheState(Protocol):
    """What a quote reads of the manager."""

    rows: list[GroupRows]
    pools: list[PagePool]
    sequences: SequenceTable
    mover: Mover
    open: SequenceOf[object]
    num_pool_groups: int
    smallest_block: int
    plain_growth: int
    one_block_growth: int
    growing_groups: SequenceOf[int]

    @property
    def version(self) -> int:
        """Changes with every mutation."""
        ...

    def check_unreserved(self, rows: Int64Array) -> None:
        """Raise ``StateError`` for a row that an undispatched reservation holds."""
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
        self._rows: list[Int64Array] = []
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
        state, sequences = self._state, self._state.sequences
        if self._rows or state.open:
            self._check_apart(rows)
        starts, border = sequences.capacity[rows], sequences.border[rows]
        if np.count_nonzero(capacities < starts):
            self._check(rows, capacities)
        crossing = (capacities > border).nonzero()[0]
        if not len(crossing):
            self._rows.append(rows)
            self.steps.append(Growth(rows, starts, capacities, crossing, ()))
            return True
        new, border = capacities[crossing], border[crossing]
        if state.one_block_growth and np.count_nonzero((border < 0) | (new > border + state.one_block_growth)) == 0:
            growth = Growth(rows, starts, capacities, crossing, (border // state.smallest_block,))
            return self._accept_growth(growth, [len(crossing) * groups for groups in state.growing_groups])
        old = starts[crossing]
        plain = (border >= 0) & (new - old <= state.plain_growth) & (new <= sequences.max_seq_len)
        if np.count_nonzero(plain) == len(plain):
            growth, needs = self._growth((rows, starts, capacities), crossing, (old, new))
            return self._accept_growth(growth, needs)
        self._check(rows, capacities)
        return self._accept(*self._singly(rows, starts, capacities), rows)

    def _singly(
        self, rows: Int64Array, starts: Int64Array, capacities: Int64Array
    ) -> tuple[list[Growth | Move], list[int]]:
        """Price rows one by one, the plain ones among them as growth."""
        state, sequences = self._state, self._state.sequences
        steps: list[Growth | Move] = []
        total = [0] * state.num_pool_groups
        for i, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), capacities.tolist(), strict=True)):
            border = int(sequences.border[row])
            if border >= 0 and end - start <= state.plain_growth:
                one = slice(i, i + 1)
                crossing = np.arange(1 if end > border else 0)
                growth, needs = self._growth(
                    (rows[one], starts[one], capacities[one]),
                    crossing,
                    (starts[one][crossing], capacities[one][crossing]),
                )
                steps.append(growth)
            else:
                planned = sequences.mode[row] == Mode.PLANNED
                move = state.mover.retarget(row, end) if planned else state.mover.extend(row, end)
                needs = move.needs(state.rows, state.num_pool_groups)
                steps.append(move)
            total = [a + b for a, b in zip(total, needs, strict=True)]
        return steps, total

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
        self._check_apart(rows)
        self._rows.append(rows)
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

    def _growth(
        self,
        batch: tuple[Int64Array, Int64Array, Int64Array],
        crossing: Int64Array,
        span: tuple[Int64Array, Int64Array],
    ) -> tuple[Growth, list[int]]:
        needs = [0] * self._state.num_pool_groups
        olds, counts = [], []
        by_block: dict[int, tuple[Int64Array, Int64Array, int]] = {}
        for rows_of in self._state.rows:
            block = rows_of.block_tokens
            if block not in by_block:
                old = (span[0] + (block - 1)) // block
                count = (span[1] + (block - 1)) // block - old
                by_block[block] = old, count, int(count.sum())
            old, count, total = by_block[block]
            olds.append(old)
            counts.append(count)
            needs[rows_of.pool_group] += total
        return Growth(*batch, crossing, tuple(olds), tuple(counts)), needs

    def _accept_growth(self, growth: Growth, needs: list[int]) -> bool:
        supplies = self._supplies()
        totals = [a + b for a, b in zip(self.needs, needs, strict=True)]
        for total, supply in zip(totals, supplies, strict=True):
            if total > supply:
                self.shortage = self._missing(needs, None)
                return False
        self.needs = totals
        self._rows.append(growth.rows)
        self.steps.append(growth)
        return True

    def _accept(self, steps: list[Growth | Move], needs: list[int], rows: Int64Array) -> bool:
        released = any(isinstance(step, Move) and (step.release or step.scratch) for step in steps)
        missing = self._missing(needs, None)
        if released and any(missing):
            missing = self._missing_after_release(steps, needs)
        if any(missing):
            self.shortage = missing
            return False
        self.needs = [a + b for a, b in zip(self.needs, needs, strict=True)]
        if released:
            self._release_moves(steps)
        self._rows.append(rows)
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
            self._supply = [pool.num_free + pool.evictable for pool in self._state.pools]
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

    def _check_apart(self, rows: Int64Array) -> None:
        """Refuse rows that are in this quote already, or in a reservation that is not dispatched."""
        self._state.check_unreserved(rows)
        taken = np.zeros(self._state.sequences.num_rows, np.bool_)
        for others in self._rows:
            taken[others] = True
        if taken[rows].any():
            raise StateError("a row is in this quote already")

    def _check(self, rows: Int64Array, capacities: Int64Array) -> None:
        """Refuse misuse with the first row that is wrong."""
        sequences = self._state.sequences
        for row, end in zip(rows.tolist(), capacities.tolist(), strict=True):
            mode, floor = Mode(int(sequences.mode[row])), int(sequences.capacity[row])
            if mode is Mode.FREE:
                raise Closed(f"row {row} is not an active sequence")
            if mode is Mode.FULL:
                raise StateError(f"row {row} has {sequences.max_open} open steps already: settle one first")
            if mode is Mode.PLANNED:
                floor = sequences.steps(row)[-1].begin
            if end < floor:
                raise StateError(f"capacity={end} of row {row} is below its last cursor {floor}")
            if end > sequences.max_seq_len:
                raise RequestTooLong(f"capacity={end} is above max_seq_len={sequences.max_seq_len}")
