"""Control over what is cached for others."""

from __future__ import annotations

from tidegate.base import Int64Array
from tidegate.cache.core import CacheCore
from tidegate.cache.nodes import Node, ReuseScope


class ReuseControl:
    """Forgets cached content, or keeps sequences from adding to it. Active sequences keep their own pages."""

    def __init__(self, core: CacheCore) -> None:
        self._core = core

    def stop_publishing(self, rows: Int64Array) -> None:
        """Publish nothing more of these sequences, such as reasoning tokens that will be stripped."""
        self._core.check_thread()
        for row in self._core.sequences.door.rows(rows).tolist():
            self._core.publisher.stop(row)
        self._core.touch()

    def invalidate(self, scope: ReuseScope) -> None:
        """Forget one scope's cached content; its active sequences publish nothing more."""
        core = self._core
        core.check_thread()
        tree = core.tree.find(scope)
        if tree is None:
            return
        for row in core.sequences.active_rows().tolist():
            if core.lives.started[row].scope == scope:
                core.publisher.stop(row)
                # What others cache from now on may be of other weights: it is no longer this sequence's path.
                core.sequences.attach[row] = Node(tree, None, 0, -1)
        core.pruner.clear(tree)
        core.touch()

    def clear(self) -> None:
        """Forget all cached content."""
        for tree in self._core.tree.trees():
            self.invalidate(tree.scope)

    def new_weights_epoch(self) -> None:
        """The weights changed: nothing computed so far may be reused by later requests."""
        self.clear()
