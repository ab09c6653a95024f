"""Who keeps which cached page: nodes keep full-attention pages, checkpoints the others.

A page that one owner keeps has its index in the ``owner`` column. For the few that several keep (overlapping
checkpoints, shared sinks, nodes that part inside a unit) the column holds ``_chain(link)``, the first of a chain of
links, newest owner first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidegate.base import Int32Array, InternalError
from tidegate.cache.nodes import Checkpoint, ClosedLeaf, Node
from tidegate.cache.pages import PageIds, PagePool
from tidegate.cache.tables import GroupRows
from tidegate.storage import FreeStack

Owner = Node | Checkpoint
_END = -1


def _chain(link: Int32Array) -> Int32Array:
    """Turn links into entries of the ``owner`` column, and back; -1 stays what it is there: nobody."""
    entry: Int32Array = -2 - link
    return entry


class PageOwners:
    """Sole writer of what pages are cached for."""

    def __init__(self) -> None:
        self._owners: list[Owner | None] = []
        self._free: list[int] = []
        self._link_owner = np.empty(64, np.int32)
        self._link_next = np.empty(64, np.int32)
        self._free_links = FreeStack(64)
        self._released: list[tuple[PagePool, Int32Array]] | None = None

    def enter(self, owner: Owner) -> None:
        """Give a node or checkpoint its index."""
        if self._free:
            owner.index = self._free.pop()
            self._owners[owner.index] = owner
        else:
            owner.index = len(self._owners)
            self._owners.append(owner)

    def reserve(self, nodes: Sequence[Node]) -> list[int]:
        """Return an index for one more checkpoint of each node, which stands in for it until it is put there."""
        lacking = len(nodes) - len(self._free)
        if lacking > 0:
            self._free.extend(range(len(self._owners), len(self._owners) + lacking))
            self._owners.extend([None] * lacking)
        cut = len(self._free) - len(nodes)
        indices = self._free[cut:]
        del self._free[cut:]
        for index, node in zip(indices, nodes, strict=True):
            self._owners[index] = node
        return indices

    def put(self, checkpoint: Checkpoint) -> None:
        """Enter a checkpoint under the index that was reserved for it."""
        self._owners[checkpoint.index] = checkpoint

    def leave(self, owner: Owner) -> None:
        """Take a node or checkpoint off the list; it keeps no page any more."""
        self._owners[owner.index] = None
        self._free.append(owner.index)

    def keep(self, rows: GroupRows, pages: Int32Array, owner: Owner, first: int) -> None:
        """Cache distinct pages, blocks from ``first`` on, for one more owner."""
        ordinals = np.arange(first, first + len(pages), dtype=np.int32)
        self.keep_many(rows.pool, pages, np.full(len(pages), owner.index, np.int32), ordinals)

    def keep_many(self, pool: PagePool, pages: PageIds, owners: Int32Array, ordinals: Int32Array) -> None:
        """Cache distinct pages, each for one more owner."""
        pages = pages.astype(np.int64, copy=False)
        refs = pool.refs[pages]
        taken = refs.nonzero()[0]
        if len(taken):
            owners = owners.copy()
            owners[taken] = self._lengthen(pool, pages[taken], owners[taken], refs[taken])
        pool.cache(pages, refs + 1, owners, ordinals)

    def _lengthen(self, pool: PagePool, pages: PageIds, owners: Int32Array, refs: Int32Array) -> Int32Array:
        """Put one more owner before those that pages have; return their entries."""
        single = pages[refs == 1]
        links = self._take_links(len(single) + len(pages))
        first, links = links[: len(single)], links[len(single) :]
        self._link_owner[first] = pool.owner[single]
        self._link_next[first] = _END
        pool.owner[single] = _chain(first)
        self._link_owner[links] = owners
        self._link_next[links] = _chain(pool.owner[pages])
        return _chain(links)

    def _take_links(self, count: int) -> Int32Array:
        lacking = count - len(self._free_links)
        if lacking > 0:
            old = len(self._link_owner)
            more = max(lacking, old // 4)
            self._link_owner = np.concatenate([self._link_owner, np.empty(more, np.int32)])
            self._link_next = np.concatenate([self._link_next, np.empty(more, np.int32)])
            self._free_links.give(np.arange(old + more - 1, old - 1, -1, dtype=np.int32))
        return self._free_links.take(count)

    def release(self, rows: GroupRows, pages: Int32Array, owner: Owner) -> None:
        """Undo ``keep``."""
        pool = rows.pool
        if len(self._free_links) < len(self._link_owner):
            several = pool.refs[pages] > 1
            if np.count_nonzero(several):
                for page in pages[several].tolist():
                    self._shorten(pool, page, owner.index)
                    pool.refs[page] -= 1
                pages = pages[~several]
        if self._released is None:
            pool.uncache(pages)
        else:
            self._released.append((pool, pages))

    def gather(self) -> None:
        """Let releases wait for ``flush``: freeing pages costs about the same for few as for many."""
        self._released = []

    def flush(self) -> None:
        """Free what was released since ``gather`` and nobody needs any more."""
        released, self._released = self._released or [], None
        for pool in {id(pool): pool for pool, _ in released}.values():
            pool.uncache(np.concatenate([pages for of, pages in released if of is pool]))

    def _shorten(self, pool: PagePool, page: int, index: int) -> None:
        """Take one owner out of a page's chain; a single one left needs none."""
        links = list(self._links(pool, page))
        gone = next(link for link in links if self._link_owner[link] == index)
        links.remove(gone)
        freed = [gone]
        if len(links) == 1:
            freed += links
            pool.owner[page] = self._link_owner[links[0]]
        else:
            pool.owner[page] = -2 - links[0]
            self._link_next[links] = [*links[1:], _END]
        self._free_links.give(np.array(freed, np.int32))

    def _links(self, pool: PagePool, page: int) -> Iterator[int]:
        link = -2 - int(pool.owner[page])
        while link != _END:
            yield link
            link = int(self._link_next[link])

    def hand_over(self, rows: GroupRows, pages: Int32Array, old: Owner, new: Owner) -> None:
        """Let ``new`` keep pages instead of ``old``."""
        pool = rows.pool
        shared = pool.refs[pages] > 1
        pool.owner[pages[~shared]] = new.index
        for page in pages[shared].tolist():
            link = next(link for link in self._links(pool, page) if self._link_owner[link] == old.index)
            self._link_owner[link] = new.index

    def owner(self, index: int) -> Owner:
        """Return who has an index."""
        owner = self._owners[index]
        if owner is None:
            raise InternalError("a cached page has no owner", owner=index)
        if isinstance(owner, ClosedLeaf) and owner.index != index:
            owner.unfold()  # puts the checkpoint that it stands in for
            return self.owner(index)
        return owner

    def holders(self, pool: PagePool, page: int) -> list[Owner]:
        """Return everything that keeps a cached page."""
        entry = int(pool.owner[page])
        if entry >= 0:
            return [self.owner(entry)]
        return [self.owner(int(self._link_owner[link])) for link in self._links(pool, page)]
