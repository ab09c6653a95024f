"""Evictable pages in the order of a rank that each gets when it is pushed.

A policy with a rule of its own only has to say ranks. Entries lie in a few sorted runs whose sizes fall by halves (the
logarithmic method of Bentley and Saxe, 1980): a page is moved O(log n) times in all, by whole arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.storage.eviction.policy import Validity

_RETENTION = 55
"""Retention, at most 100, makes the uppermost bits of a rank."""


class _Run(NamedTuple):
    ranks: Int64Array
    pages: Int32Array
    stamps: Int32Array

    def part(self, chosen: BoolArray | slice) -> _Run:
        return _Run(self.ranks[chosen], self.pages[chosen], self.stamps[chosen])


def _merged(runs: list[_Run]) -> _Run:
    ranks, pages, stamps = (np.concatenate(columns) for columns in zip(*runs, strict=True))
    order = np.argsort(ranks, kind="stable")
    return _Run(ranks[order], pages[order], stamps[order])


class RankedPages:
    """Lowest rank first. ``valid`` is the pool's; an entry that it refuses is dropped when it is met."""

    def __init__(self, valid: Validity) -> None:
        self._valid = valid
        self._runs: list[_Run] = []
        self._rank_of = np.zeros(0, np.int64)

    def push(self, pages: Int32Array | Int64Array, ranks: Int64Array, stamp: int, retention: int) -> None:
        """Note pages that became evictable, int64 ranks in ``[0, 2^55)``; equal ranks go in the order of pushing."""
        if not len(pages):
            return
        whole = ranks + (retention << _RETENTION)
        self._remember(pages, whole)
        self._add(whole, pages.astype(np.int32), np.full(len(pages), stamp, np.int32))

    def restore(self, pages: Int32Array, stamps: Int32Array) -> None:
        """Take popped pages back at the ranks they had."""
        if len(pages):
            self._add(self._rank_of[pages], pages, stamps)

    def pop(self, count: int, valid: Validity) -> Int32Array:
        """Choose up to ``count`` pages, in order of going."""
        heads, rests = [], []
        for run in self._runs:
            head, rest = self._head(run, count, valid)
            heads.append(head)
            rests.append(rest)
        if not heads:
            return np.empty(0, np.int32)
        best = _merged(heads)
        # What is not among the best goes back to the front: it is a run of its own, shorter than what was asked for.
        kept = [run for run in (*rests, best.part(slice(count, None))) if len(run.pages)]
        self._runs = sorted(kept, key=lambda run: -len(run.pages))
        self._fold()
        return best.pages[:count]

    def restamp(self, stamp: int) -> None:
        """Drop entries that are not valid and give all others this stamp."""
        if self._runs:
            run = _merged(self._runs)
            run = run.part(self._valid(run.pages, run.stamps))
            self._runs = [_Run(run.ranks, run.pages, np.full(len(run.pages), stamp, np.int32))]

    def num_queued(self, evictable: BoolArray) -> int:
        """Return how many of the pages marked evictable have a valid entry, for audits."""
        found = np.zeros(len(evictable), np.bool_)
        for run in self._runs:
            found[run.pages[self._valid(run.pages, run.stamps)]] = True
        return int((found & evictable).sum())

    def _head(self, run: _Run, count: int, valid: Validity) -> tuple[_Run, _Run]:
        """Split a run after its first ``count`` valid entries; the invalid ones before are gone."""
        found, parts, at = 0, [run.part(slice(0, 0))], 0
        while found < count and at < len(run.pages):
            end = at + max(count - found, 64)
            part = run.part(slice(at, end))
            part = part.part(valid(part.pages, part.stamps))
            found, at = found + len(part.pages), end
            parts.append(part)
        whole = _merged(parts)
        return whole.part(slice(0, count)), _merged([whole.part(slice(count, None)), run.part(slice(at, None))])

    def _remember(self, pages: Int32Array | Int64Array, ranks: Int64Array) -> None:
        self._rank_of = grown(self._rank_of, int(pages.max()) + 1)
        self._rank_of[pages] = ranks

    def _add(self, ranks: Int64Array, pages: Int32Array, stamps: Int32Array) -> None:
        order = np.argsort(ranks, kind="stable")
        self._runs.append(_Run(ranks[order], pages[order], stamps[order]))
        self._fold()

    def _fold(self) -> None:
        """Join runs until each is at least twice as long as the next."""
        runs = self._runs
        while len(runs) > 1 and len(runs[-2].pages) < 2 * len(runs[-1].pages):
            run = _merged(runs[-2:])
            runs[-2:] = [run.part(self._valid(run.pages, run.stamps))]


def grown(column: Int64Array, count: int) -> Int64Array:
    """Return a column by page id with room for ``count`` pages: itself, or a longer copy with zeros behind."""
    if count <= len(column):
        return column
    return np.concatenate([column, np.zeros(max(count, len(column) * 5 // 4) - len(column), np.int64)])
