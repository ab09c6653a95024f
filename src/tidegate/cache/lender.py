"""Finds slots for new pages: free ones first, then what the batch itself gives back, then evicted pages' slots.

Slots that are not free are on loan until the reservation is dispatched: the page they come from keeps its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int32Array, InternalError
from tidegate.cache.pages import PagePool
from tidegate.cache.pruning import TreePruner
from tidegate.cache.tables import GroupRows

_NO_PAGES = np.empty(0, np.int32)
_AHEAD = 1024
"""Most pages that are dropped together, and at most a 256th of the pool."""


class Lender:
    """One reservation's account, per pool group."""

    __slots__ = ("_at", "_free", "_loans", "_pages", "_pools", "_pruner", "_released", "_rows", "_slots")

    def __init__(self, rows: Sequence[GroupRows], pools: Sequence[PagePool], pruner: TreePruner) -> None:
        self._rows = rows
        self._pools = pools
        self._pruner = pruner
        self._pages: list[Int32Array] = [_NO_PAGES] * len(pools)
        self._slots: list[Int32Array] = [_NO_PAGES] * len(pools)
        self._at = [0] * len(pools)
        self._free: list[Int32Array | None] = [None] * len(pools)
        self._loans: list[tuple[int, Int32Array, Int32Array]] = []
        self._released: list[tuple[int, Int32Array]] = []

    def release(self, group: int, pages: Int32Array) -> None:
        """Note pages that the batch takes out of a row; they stay locked until ``end``."""
        if len(pages):
            self._released.append((self._rows[group].group.pool_group, pages))

    def fill(self, needs: Sequence[int], victims: Sequence[int]) -> None:
        """Make ``needs[p]`` new pages in each pool group; the quote has made sure that they are to be had."""
        for pool_group, need in enumerate(needs):
            if not need:
                continue
            pool = self._pools[pool_group]
            count = min(need, pool.num_free)
            slots = self._free[pool_group] = pool.storage.free.take(count)
            if count < need:
                slots = np.concatenate([slots, *self._borrow(pool_group, need - count, victims)])
            self._pages[pool_group] = pool.acquire(slots)
            self._slots[pool_group] = slots

    def take(self, pool_group: int, count: int) -> Int32Array:
        """Hand out new pages."""
        return self.take_with_slots(pool_group, count)[0]

    def take_with_slots(self, pool_group: int, count: int) -> tuple[Int32Array, Int32Array]:
        """Hand out new pages, and say which slots they lie in."""
        at = self._at[pool_group]
        end = self._at[pool_group] = at + count
        return self._pages[pool_group][at:end], self._slots[pool_group][at:end]

    def _borrow(self, pool_group: int, need: int, victims: Sequence[int]) -> list[Int32Array]:
        pool = self._pools[pool_group]
        private, cached = self._coming_back(pool_group, victims)
        slots: list[Int32Array] = []
        for source in (private, None, cached):
            if not need:
                break
            pages = pool.pop(need) if source is None else source[:need]
            need -= len(pages)
            slots.append(pool.doom(pages))
            self._loans.append((pool_group, pages, slots[-1]))
        if need:
            raise InternalError(f"pool group {pool_group} is {need} pages short of what was quoted", missing=need)
        return slots

    def _coming_back(self, pool_group: int, victims: Sequence[int]) -> tuple[Int32Array, Int32Array]:
        """Pages all of whose locks this batch releases: those nobody caches, and cached ones, tails first."""
        parts = [pages for group, pages in self._released if group == pool_group]
        for rows in self._rows:
            if rows.group.pool_group == pool_group:
                for row in victims:
                    pages = rows.pages[row]
                    held = rows.scratch[row]
                    parts.extend([pages[pages >= 0][::-1], _NO_PAGES if held is None else held])
        if not parts:
            return _NO_PAGES, _NO_PAGES
        pool = self._pools[pool_group]
        pages, first, count = np.unique(np.concatenate(parts), return_index=True, return_counts=True)
        final = (pool.locks[pages] == count) & (pool.slot[pages] >= 0)
        order = np.argsort(first[final], kind="stable")
        pages = pages[final][order]
        cached = pool.refs[pages] > 0
        return pages[~cached], pages[cached]

    def give_back(self) -> None:
        """Undo: free slots are free again, loaned ones go back to their pages."""
        for pool, free in zip(self._pools, self._free, strict=True):
            if free is not None:
                pool.storage.free.give(free)
        for pool_group, pages, slots in self._loans:
            self._pools[pool_group].undoom(pages, slots)

    def settle(self) -> None:
        """Dispatch, first half: cached pages whose slots were lent leave the tree."""
        for pool_group, pages, _ in self._loans:
            pool = self._pools[pool_group]
            cached = pages[pool.refs[pages] > 0]
            if len(cached):
                # Dropping costs about the same for a few pages as for many: a large pool makes some room ahead.
                ahead = min(_AHEAD, pool.num_slots // 256) - len(cached)
                if ahead > 0:
                    cached = np.concatenate([cached, pool.pop(ahead)])
                self._pruner.drop_owners(pool, pool_group, cached)

    def end(self) -> None:
        """Dispatch, second half: what the batch released loses its lock, lenders cease to be."""
        for pool_group, pages in self._released:
            self._pools[pool_group].unlock(pages[::-1])
        for pool_group, pages, _ in self._loans:
            self._pools[pool_group].bury(pages)
