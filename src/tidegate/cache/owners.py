"""Who keeps which cached page: nodes keep full-attention pages, checkpoints the others.

A page has one owner in its ``owner`` column; the few that several keep (overlapping checkpoints, shared sinks, nodes
that part inside a unit) are in a side table.
"""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, InternalError
from tidegate.cache.nodes import Checkpoint, Node
from tidegate.cache.pages import PagePool
from tidegate.cache.tables import GroupRows

Owner = Node | Checkpoint


class PageOwners:
    """Sole writer of what pages are cached for."""

    def __init__(self) -> None:
        self._owners: list[Owner | None] = []
        self._free: list[int] = []
        self._shared: dict[tuple[int, int], set[Owner]] = {}
        self._released: list[tuple[PagePool, Int32Array]] | None = None

    def enter(self, owner: Owner) -> None:
        """Give a node or checkpoint its index."""
        if self._free:
            owner.index = self._free.pop()
            self._owners[owner.index] = owner
        else:
            owner.index = len(self._owners)
            self._owners.append(owner)

    def leave(self, owner: Owner) -> None:
        """Take a node or checkpoint off the list; it keeps no page any more."""
        self._owners[owner.index] = None
        self._free.append(owner.index)

    def keep(self, rows: GroupRows, pages: Int32Array, owner: Owner, first: int) -> None:
        """Cache pages, blocks from ``first`` on, for one more owner."""
        pool = rows.pool
        for page in pages[pool.refs[pages] > 0].tolist():
            self.share(pool, rows.pool_group, page, owner)
        pool.cache(pages, owner.index, first)

    def share(self, pool: PagePool, pool_group: int, page: int, owner: Owner) -> None:
        """Note one more owner of a page that has one already."""
        holders = self._shared.get((pool_group, page))
        if holders is None:
            older = self._owners[pool.owner[page]]
            holders = self._shared[pool_group, page] = set() if older is None else {older}
        holders.add(owner)

    def release(self, rows: GroupRows, pages: Int32Array, owner: Owner) -> None:
        """Undo ``keep``."""
        pool, pool_group = rows.pool, rows.pool_group
        if self._shared:
            several = pool.refs[pages] > 1
            if np.count_nonzero(several):
                for page in pages[several].tolist():
                    holders = self._shared[pool_group, page]
                    holders.discard(owner)
                    pool.owner[page] = next(iter(holders)).index
                    pool.refs[page] -= 1
                    if len(holders) == 1:
                        del self._shared[pool_group, page]
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

    def hand_over(self, rows: GroupRows, pages: Int32Array, old: Owner, new: Owner) -> None:
        """Let ``new`` keep pages instead of ``old``."""
        rows.pool.owner[pages] = new.index
        if self._shared:
            for page in pages[rows.pool.refs[pages] > 1].tolist():
                holders = self._shared[rows.pool_group, page]
                holders.discard(old)
                holders.add(new)

    def owner(self, index: int) -> Owner:
        """Return who has an index."""
        owner = self._owners[index]
        if owner is None:
            raise InternalError("a cached page has no owner", owner=index)
        return owner

    def holders(self, pool: PagePool, pool_group: int, page: int) -> list[Owner]:
        """Return everything that keeps a cached page."""
        shared = self._shared.get((pool_group, page))
        return list(shared) if shared is not None else [self.owner(int(pool.owner[page]))]
