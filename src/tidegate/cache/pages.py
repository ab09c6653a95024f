"""The page table of record: one structure of arrays per pool group.

A page is *locked* (``locks`` sequences use it now) and/or *cached* (``refs`` tree nodes or checkpoints keep it). It
dies when both are zero. Cached and unlocked means evictable. A *doomed* page is evictable content whose slot an open
reservation has taken on loan: it keeps its place in the tree, without a slot, until the reservation is dispatched
(then it is dropped) or rolled back (then it gets its slot back).
"""

from __future__ import annotations

import numpy as np

from tidegate.base import BoolArray, Int32Array, Int64Array
from tidegate.storage import FreeStack, PolicyMaker, PoolGroup

PageIds = Int32Array | Int64Array
"""Pages by id: kept as int32; as int64 they are the faster index, for those who use them several times."""


_ONE = np.array(1, np.int32)
_LAST_STAMP = (1 << 31) - 1


class PagePool:
    """Pages of one pool group. Columns are indexed by page id; ``owner`` indexes the tree's owners.

    Page ids are kept in 32 bits and turned into 64 before they index: numpy would do it anew each time, and slower.
    """

    def __init__(self, storage: PoolGroup, make_policy: PolicyMaker) -> None:
        count = storage.spec.num_slots
        capacity = count + max(count // 32, 64)
        self.storage = storage
        self.num_slots = count
        self.slot = np.full(capacity, -1, np.int32)
        self.locks = np.zeros(capacity, np.int32)
        self.refs = np.zeros(capacity, np.int32)
        self.owner = np.full(capacity, -1, np.int32)
        self.ordinal = np.full(capacity, -1, np.int32)
        self.stamp = np.zeros(capacity, np.int32)
        """When it was last released; int32 in all that remembers it, for there is one of these per page."""
        self.retention = np.zeros(capacity, np.int8)
        self._mark = np.zeros(capacity, np.int32)
        self.ids = FreeStack(capacity)
        self.evictable = 0
        self.doomed = 0
        self.policy = make_policy(self._valid, self)
        self._notes_new = self.policy.notes_new
        self.peak_in_use = 0
        self.num_dropped = 0
        self._clock = 0

    @property
    def num_free(self) -> int:
        """Slots that hold nothing."""
        return self.storage.free.count

    def acquire(self, slots: Int32Array) -> Int32Array:
        """Make new private pages in ``slots``, each locked once; return their ids."""
        count = len(slots)
        if self.ids.count < count:
            self._grow(count)
        pages = self.ids.take(count)
        index = pages.astype(np.int64)
        self.slot[index] = slots
        self.locks[index] = 1
        if self._notes_new:
            self.policy.begin(pages)
        used = self.num_slots - self.storage.free.count - self.evictable
        if used > self.peak_in_use:
            self.peak_in_use = used
        return pages

    def lock(self, pages: Int32Array) -> None:
        """Add one lock to each of these distinct pages."""
        index = pages.astype(np.int64)
        locks = self.locks[index]
        idle = len(locks) - int(np.count_nonzero(locks))
        self.evictable -= idle
        self.locks[index] = locks + 1

    def unlock(self, pages: Int32Array, retention: int = 0) -> None:
        """Take one lock from each of these distinct pages; ``pages`` in the order in which they may be evicted."""
        index = pages.astype(np.int64)
        locks = self.locks[index] - 1
        self.locks[index] = locks
        idle = index if np.count_nonzero(locks) == 0 else index[locks == 0]
        self._settle_idle(idle, retention)

    def unlock_many(self, pages: PageIds, retention: int = 0) -> None:
        """Like ``unlock``; the same page may come several times, once for each lock to take."""
        index = pages.astype(np.int64, copy=False)
        if np.count_nonzero(self.locks[index] != _ONE) == 0:
            # Each with its only lock, so none comes twice.
            self.locks[index] = 0
            self._settle_idle(index, retention)
            return
        np.subtract.at(self.locks, index, 1)
        idle = index[self.locks[index] == 0]
        if len(idle):
            place = np.arange(len(idle), dtype=np.int32)
            self._mark[idle] = place
            idle = idle[self._mark[idle] == place]
        self._settle_idle(idle, retention)

    def _settle_idle(self, idle: Int64Array, retention: int) -> None:
        """Free unlocked pages nobody caches; queue the others for eviction."""
        refs = self.refs[idle]
        num_cached = np.count_nonzero(refs)
        if num_cached == 0:
            self._free(idle)
            return
        cached = idle
        if num_cached < len(idle):
            cached = idle[refs > 0]
            self._free(idle[refs == 0])
        if self._clock == _LAST_STAMP:
            self._restart_clock()
        self._clock += 1
        self.stamp[cached] = self._clock
        self.retention[cached] = retention
        self.evictable += len(cached)
        self.policy.push(cached, self._clock, retention)

    def _restart_clock(self) -> None:
        """Begin anew: what is queued stays in its order, whatever its stamps."""
        self.policy.restamp(0)
        self.stamp[:] = self._clock = 0

    def has_repeats(self, pages: PageIds) -> bool:
        """Whether a page comes twice."""
        place = np.arange(len(pages), dtype=np.int32)
        self._mark[pages] = place
        return bool(np.count_nonzero(self._mark[pages] != place))

    def cache(self, pages: PageIds, refs: Int32Array, owners: Int32Array, ordinals: Int32Array) -> None:
        """Let owners keep these distinct, locked pages, ``refs`` of them each."""
        self.refs[pages] = refs
        self.owner[pages] = owners
        self.ordinal[pages] = ordinals

    def uncache(self, pages: Int32Array) -> None:
        """Let the only owners of these distinct pages forget them; what nobody locks is freed."""
        index = pages.astype(np.int64)
        self.refs[index] = 0
        dead = index[self.locks[index] == 0]
        self.evictable -= len(dead) if not self.doomed else int(np.count_nonzero(self.slot[dead] >= 0))
        self.num_dropped += len(dead)
        self._free(dead)

    def pop(self, count: int) -> Int32Array:
        """Choose ``count`` evictable pages, in eviction order."""
        return self.policy.pop(count, self._valid)

    def doom(self, pages: Int32Array) -> Int32Array:
        """Take the slots of these pages on loan: evictable ones, or a victim's."""
        index = pages.astype(np.int64)
        slots = self.slot[index]
        self.slot[index] = -1
        self.evictable -= int(np.count_nonzero(self.locks[index] == 0))
        self.doomed += len(pages)
        return slots

    def undoom(self, pages: Int32Array, slots: Int32Array) -> None:
        """Give loaned slots back to the pages that still are somebody's; free those of the others."""
        idle = self.locks[pages] == 0
        kept = ~idle | (self.refs[pages] > 0)
        self.doomed -= len(pages)
        self.slot[pages[kept]] = slots[kept]
        evictable = pages[kept & idle]
        self.evictable += len(evictable)
        self.policy.restore(evictable, self.stamp[evictable], self.retention[evictable].astype(np.int32))
        self.storage.free.give(slots[~kept])
        self.ids.give(pages[~kept])

    def bury(self, pages: Int32Array) -> None:
        """End a loan for good: nobody caches or locks these pages any more."""
        self.doomed -= len(pages)
        self.ids.give(pages)

    def discard(self, pages: Int32Array) -> None:
        """Undo ``acquire``; the slots go where the caller has them from."""
        self.slot[pages] = -1
        self.locks[pages] = 0
        self.ids.give(pages)

    def _valid(self, pages: Int32Array, stamps: Int32Array) -> BoolArray:
        index = pages.astype(np.int64)
        valid: BoolArray = (self.stamp[index] == stamps) & (self.locks[index] == 0)
        valid &= (self.refs[index] > 0) & (self.slot[index] >= 0)
        return valid

    def _free(self, pages: Int64Array) -> None:
        if self.doomed:
            pages = pages[self.slot[pages] >= 0]
        if len(pages):
            self.storage.free.give(self.slot[pages])
            self.slot[pages] = -1
            self.ids.give(pages)

    def _grow(self, count: int) -> None:
        old = len(self.slot)
        new = old + max(count, old // 16)
        for name, empty in (
            ("slot", -1),
            ("locks", 0),
            ("refs", 0),
            ("owner", -1),
            ("ordinal", -1),
            ("stamp", 0),
            ("_mark", 0),
        ):
            column = getattr(self, name)
            grown = np.full(new, empty, column.dtype)
            grown[:old] = column
            setattr(self, name, grown)
        self.retention = np.concatenate([self.retention, np.zeros(new - old, np.int8)])
        self.ids.give(np.arange(new - 1, old - 1, -1, dtype=np.int32))
