"""Prices a step without touching anything.

A quote is extended, never summed: pages that several of its sequences lock, share or release are counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from tidegate.base import Closed, ConfigError, Int64Array, RequestTooLong, StateError
from tidegate.cache.candidate import Candidate
from tidegate.cache.door import integers, position
from tidegate.cache.moves import Move, Mover
from tidegate.cache.pages import PagePool
from tidegate.cache.sequences import ZERO, Mode, SequenceTable
from tidegate.cache.tables import GroupRows
from tidegate.cache.tally import Tally


class Growth(NamedTuple):
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
    num_pool_groups: int
    plain_growth: int
    one_block_growth: Int64Array
    growing_groups: list[int]

    @property
    def version(self) -> int:
        """Changes with every mutation."""
        ...

    @property
    def has_open_reservations(self) -> bool:
        """Whether some reservation is neither kept nor rolled back."""
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
        self.tally = Tally(state.rows, state.pools)
        self.shortage: tuple[int, ...] = tuple(self.tally.needs)
        self.state = state
        self._refresh = refresh
        self._rows: list[Int64Array] = []
        self._num_new = 0

    @property
    def supply(self) -> tuple[int, ...]:
        """Pages per pool group that this quote could still hand out."""
        return tuple(s - n for s, n in zip(self.tally.supplies, self.tally.needs, strict=True))

    def add(self, rows: Int64Array, capacities: Int64Array) -> bool:
        """Let each of these distinct rows' next open step end at ``capacities``; all of them, or False and nothing."""
        state, sequences = self.state, self.state.sequences
        rows = sequences.door.rows(rows)
        capacities = integers(capacities, "capacities", len(rows)).copy()
        capacities.setflags(write=False)  # the reservation goes by them
        if self._rows or state.has_open_reservations:
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
        if self._one_block_each(new, border):
            growth = Growth(rows, starts, capacities, crossing, (border // sequences.block,))
            return self._accept_growth(growth, [len(crossing) * groups for groups in state.growing_groups])
        old = starts[crossing]
        plain = (border >= ZERO) & (new - old <= state.plain_growth) & (new <= sequences.limit)
        if np.count_nonzero(plain) == len(plain):
            growth, needs = self._growth((rows, starts, capacities), crossing, (old, new))
            return self._accept_growth(growth, needs)
        self._check(rows, capacities)
        return self._accept(*self._singly(rows, starts, capacities), rows)

    def _one_block_each(self, new: Int64Array, border: Int64Array) -> bool:
        """Whether each of these rows needs exactly the block at its border."""
        state = self.state
        beyond = (new - border > state.one_block_growth) | (new > state.sequences.limit)
        return bool(np.count_nonzero(beyond) == 0)

    def _singly(
        self, rows: Int64Array, starts: Int64Array, capacities: Int64Array
    ) -> tuple[list[Growth | Move], list[int]]:
        """Price rows one by one, the plain ones among them as growth."""
        state, sequences = self.state, self.state.sequences
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
        if not isinstance(candidate, Candidate):
            raise ConfigError(f"candidate={candidate!r} must come from manager.candidate", field="candidate")
        capacity = position(capacity, "capacity")
        self._refresh(candidate)
        match = candidate.match
        state = self.state
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
        missing = self.tally.missing(needs, self.tally.newly_locked(move))
        if any(missing):
            self.shortage = missing
            return False
        self.tally.lock(move)
        self.tally.take(needs)
        self.steps.append(move)
        self._candidates.add(id(candidate))
        self._num_new += 1
        return True

    def suspend(self, rows: Int64Array) -> None:
        """Give these rows up to this step: what only they hold becomes supply. They must have no open step."""
        sequences = self.state.sequences
        if self._candidates:
            raise StateError("victims must be named before candidates are admitted: their pages are priced together")
        rows = sequences.door.rows(rows)
        self._check_apart(rows)
        self._rows.append(rows)
        if (sequences.mode[rows] != Mode.READY).any() or sequences.num_open[rows].any():
            raise StateError("a victim must be active, without open steps and outside reservations")
        for row in rows.tolist():
            self.victims.append(row)
            self.tally.release_row(row)

    def accept_move(self, move: Move, row: int) -> bool:
        """Add a move computed elsewhere; False and nothing when pages are short."""
        needs = move.needs(self.state.rows, self.state.num_pool_groups)
        return self._accept([move], needs, np.array([row]))

    # ---- tally

    def _growth(
        self,
        batch: tuple[Int64Array, Int64Array, Int64Array],
        crossing: Int64Array,
        span: tuple[Int64Array, Int64Array],
    ) -> tuple[Growth, list[int]]:
        needs = [0] * self.state.num_pool_groups
        olds, counts = [], []
        by_block: dict[int, tuple[Int64Array, Int64Array, int]] = {}
        for rows_of in self.state.rows:
            block = rows_of.block_tokens
            if block not in by_block:
                size, round_up = np.array(block), np.array(block - 1)
                old = (span[0] + round_up) // size
                count = (span[1] + round_up) // size - old
                by_block[block] = old, count, int(count.sum())
            old, count, total = by_block[block]
            olds.append(old)
            counts.append(count)
            needs[rows_of.pool_group] += total
        return Growth(*batch, crossing, tuple(olds), tuple(counts)), needs

    def _accept_growth(self, growth: Growth, needs: list[int]) -> bool:
        if not self.tally.take(needs):
            self.shortage = self.tally.missing(needs)
            return False
        self._rows.append(growth.rows)
        self.steps.append(growth)
        return True

    def _accept(self, steps: list[Growth | Move], needs: list[int], rows: Int64Array) -> bool:
        giving = [step for step in steps if isinstance(step, Move) and (step.release or step.scratch)]
        missing = self.tally.missing(needs)
        if giving and any(missing):
            missing = self.tally.missing_after(giving, needs)
        if any(missing):
            self.shortage = missing
            return False
        self.tally.release_moves(giving)
        self.tally.take(needs)
        self._rows.append(rows)
        self.steps.extend(steps)
        return True

    # ---- checks

    def _check_apart(self, rows: Int64Array) -> None:
        """Refuse rows that are in this quote already, or in a reservation that is not dispatched."""
        self.state.check_unreserved(rows)
        taken = np.zeros(self.state.sequences.num_rows, np.bool_)
        for others in self._rows:
            taken[others] = True
        if taken[rows].any():
            raise StateError("a row is in this quote already")

    def _check(self, rows: Int64Array, capacities: Int64Array) -> None:
        """Refuse misuse with the first row that is wrong."""
        sequences = self.state.sequences
        for row, end in zip(rows.tolist(), capacities.tolist(), strict=True):
            mode, floor = int(sequences.mode[row]), int(sequences.capacity[row])
            if mode == Mode.FREE:
                raise Closed(f"row {row} is not an active sequence")
            if mode == Mode.FULL:
                raise StateError(f"row {row} has {sequences.max_open} open steps already: settle one first")
            if mode == Mode.PLANNED:
                floor = sequences.steps(row)[-1].begin
            if end < floor:
                raise StateError(f"capacity={end} of row {row} is below its last cursor {floor}")
            if end > sequences.max_seq_len:
                raise RequestTooLong(f"capacity={end} is above max_seq_len={sequences.max_seq_len}")
