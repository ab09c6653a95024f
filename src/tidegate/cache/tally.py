"""What a quote has taken so far, and what is left: sets of pages are counted once for the whole batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tidegate.base import BoolArray, Int32Array
from tidegate.cache.moves import Move
from tidegate.cache.pages import PagePool
from tidegate.cache.tables import GroupRows


class Tally:
    """Per pool group: ``needs`` fresh pages so far, out of ``supplies`` (free, evictable, or released by the batch)."""

    __slots__ = ("_locked", "_pools", "_rows", "_supply", "_unlocked", "needs")

    def __init__(self, rows: Sequence[GroupRows], pools: Sequence[PagePool]) -> None:
        self.needs = [0] * len(pools)
        self._rows = rows
        self._pools = pools
        self._supply: list[int] | None = None
        self._locked: dict[int, BoolArray] = {}
        self._unlocked: dict[int, Int32Array] = {}

    @property
    def supplies(self) -> list[int]:
        """Pages per pool group the batch may take in all."""
        if self._supply is None:
            self._supply = [pool.num_free + pool.evictable for pool in self._pools]
        return self._supply

    def take(self, needs: Sequence[int]) -> bool:
        """Take fresh pages; all, or False and none."""
        supplies, totals = self.supplies, self.needs.copy()
        for pool_group, need in enumerate(needs):
            totals[pool_group] += need
            if totals[pool_group] > supplies[pool_group]:
                return False
        self.needs = totals
        return True

    def missing(self, needs: Sequence[int], locks: Sequence[int] | None = None) -> tuple[int, ...]:
        """Pages per pool group that are short for ``needs`` more, while ``locks`` more stop being evictable."""
        supplies = self.supplies
        return tuple(
            max(0, self.needs[i] + need + (locks[i] if locks else 0) - supplies[i]) for i, need in enumerate(needs)
        )

    def missing_after(self, moves: Sequence[Move], needs: Sequence[int]) -> tuple[int, ...]:
        """Like ``missing``, when the moves' own releases count; leaves the tally as it was."""
        supplies, unlocked = self.supplies.copy(), {g: a.copy() for g, a in self._unlocked.items()}
        self.release_moves(moves)
        missing = self.missing(needs)
        self._supply, self._unlocked = supplies, unlocked
        return missing

    def release_moves(self, moves: Iterable[Move]) -> None:
        """Count what moves give back."""
        for move in moves:
            for group, (begin, end) in move.release:
                rows_of = self._rows[group]
                self._release(rows_of, rows_of.pages[move.row, begin:end])
            for group, change in move.scratch:
                held = self._rows[group].scratch[move.row]
                if change < 0 and held is not None:
                    self._release(self._rows[group], held[change:])

    def release_row(self, row: int) -> None:
        """Count everything a victim gives back."""
        for rows_of in self._rows:
            pages = rows_of.pages[row]
            self._release(rows_of, pages[pages >= 0])
            held = rows_of.scratch[row]
            if held is not None:
                self._release(rows_of, held)

    def _release(self, rows_of: GroupRows, pages: Int32Array) -> None:
        """Count pages all of whose locks this quote releases."""
        group = rows_of.pool_group
        unlocked = self._unlocked.get(group)
        if unlocked is None:
            unlocked = self._unlocked[group] = np.zeros(len(rows_of.pool.slot), np.int32)
        unlocked[pages] += 1
        self.supplies[group] += int(np.count_nonzero(unlocked[pages] == rows_of.pool.locks[pages]))

    def newly_locked(self, move: Move) -> list[int]:
        """Pages per pool group that stop being evictable when this candidate takes its match."""
        numbers = [0] * len(self._pools)
        if move.candidate is not None:
            for rows_of, runs in zip(self._rows, move.candidate.match.held, strict=False):
                for _, pages in runs:
                    numbers[rows_of.pool_group] += len(self._idle(rows_of, pages))
        return numbers

    def lock(self, move: Move) -> None:
        """Let a candidate's match stop being supply."""
        if move.candidate is None:
            return
        for rows_of, runs in zip(self._rows, move.candidate.match.held, strict=False):
            for _, pages in runs:
                idle = self._idle(rows_of, pages)
                if len(idle):
                    group = rows_of.pool_group
                    if group not in self._locked:
                        self._locked[group] = np.zeros(len(rows_of.pool.slot), np.bool_)
                    self._locked[group][idle] = True
                    self.supplies[group] -= len(idle)

    def _idle(self, rows_of: GroupRows, pages: Int32Array) -> Int32Array:
        """Pages that count as supply now: nobody locks them once this quote's victims are gone, nor does this quote."""
        group = rows_of.pool_group
        unlocked, locked = self._unlocked.get(group), self._locked.get(group)
        locks: Int32Array = rows_of.pool.locks[pages]
        if unlocked is not None:
            locks = locks - unlocked[pages]
        idle: Int32Array = pages[locks == 0]
        return idle if locked is None else idle[~locked[idle]]
