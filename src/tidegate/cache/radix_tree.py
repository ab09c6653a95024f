"""The prefix tree and how it grows; see ``nodes`` for its shape and ``pruning`` for how it shrinks."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from tidegate.base import Int32Array, InternalError, Retention
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, Node, ReuseScope, ScopeTree, list_checkpoint
from tidegate.cache.owners import PageOwners
from tidegate.cache.sequences import SequenceTable
from tidegate.cache.tables import GroupRows
from tidegate.cache.tree_reader import TreeReader

_FEW_TREES = 64


class RadixTree:
    """All scopes' trees. ``full`` and ``special`` (windowed, state) are the groups by what keeps their pages."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable, unit: int) -> None:
        self.unit = unit
        self.unit_bytes = unit * TOKEN_BYTES
        self.rows = rows
        self.full = [r for r in rows if r.group.retention is Retention.FULL]
        self.special = [r for r in rows if r.group.retention is not Retention.FULL]
        self.owners = PageOwners()
        self.reader = TreeReader(self.full, sequences, unit)
        self.num_nodes = 0
        self._sequences = sequences
        self._trees: dict[ReuseScope, ScopeTree] = {}
        self._sweep_at = _FEW_TREES
        self._first_version = 0
        self._last: ScopeTree | None = None
        """What was found last: most often the default scope's, and a scope is slow to hash."""

    def find(self, scope: ReuseScope) -> ScopeTree | None:
        """Return the scope's tree, if it has one."""
        last = self._last
        if last is not None and last.scope is scope:
            return last
        found = self._last = self._trees.get(scope)
        return found

    def tree(self, scope: ReuseScope) -> ScopeTree:
        """Return the scope's tree, made if need be."""
        found = self._trees.get(scope)
        if found is None:
            if len(self._trees) >= self._sweep_at:
                self._sweep()
            found = self._trees[scope] = ScopeTree(scope, self._first_version)
        return found

    def _sweep(self) -> None:
        """Forget the scopes of which nothing is cached and no sequence runs: salts may be as many as requests."""
        used = {node.tree for node in self._sequences.attach if node is not None}
        for tree in self.trees():
            if not tree.root.children and tree not in used:
                del self._trees[tree.scope]
                # Candidates remember versions: a tree that is made again must not repeat an old one's.
                self._first_version = max(self._first_version, tree.version + 1)
        self._sweep_at = max(_FEW_TREES, 2 * len(self._trees))
        self._last = None

    def is_attached(self, node: Node) -> bool:
        """Tell whether an active sequence's published prefix ends there."""
        return any(attached is node for attached in self._sequences.attach)

    def trees(self) -> list[ScopeTree]:
        """Return every scope's tree."""
        return list(self._trees.values())

    def add_node(self, parent: Node, start: int, row: int, key: bytes) -> Node:
        """Hang a new node under ``parent``; ``row >= 0`` makes an open leaf."""
        node = Node(parent.tree, parent, start, row)
        self.owners.enter(node)
        if parent.children is None or parent.keys is None:
            parent.children, parent.keys = {}, []
        if key in parent.children:
            raise InternalError("two children with the same first unit", start=start)
        node.key = key
        parent.children[key] = node
        insort(parent.keys, key)
        parent.tree.version += 1
        self.num_nodes += 1
        return node

    def close_leaf(self, node: Node) -> None:
        """Turn an open leaf into a plain node; its sequence goes on below it."""
        sequences, row = self._sequences, node.row
        stop = int(sequences.published[row])
        node.data = sequences.tokens[row, node.start : stop].tobytes()
        node.pages = []
        for rows in self.full:
            block = rows.group.block_tokens
            pages = rows.pages[row, node.start // block : stop // block].copy()
            self.owners.keep(rows, pages, node, node.start // block)
            node.pages.append(pages)
        node.row = -1
        sequences.leaf[row] = None
        sequences.attach[row] = node
        node.tree.version += 1

    def split(self, node: Node, at: int) -> Node:
        """Cut a plain node at token position ``at``; return the new upper part. ``node`` keeps the lower one."""
        cut = (at - node.start) * TOKEN_BYTES
        parent = node.parent
        if parent is None or parent.children is None or not 0 < cut < len(node.data):
            raise InternalError("a node can only be split inside", start=node.start, at=at)
        upper = Node(node.tree, parent, node.start, -1)
        self.owners.enter(upper)
        upper.data, node.data = node.data[:cut], node.data[cut:]
        upper.key = upper.data[: self.unit_bytes]
        parent.children[upper.key] = upper
        for i, rows in enumerate(self.full):
            blocks = (at - upper.start) // rows.group.block_tokens
            pages = node.pages[i][:blocks].copy()
            self.owners.hand_over(rows, pages, node, upper)
            upper.pages.append(pages)
            node.pages[i] = node.pages[i][blocks:].copy()
        node.parent, node.start = upper, at
        node.key = node.data[: self.unit_bytes]
        upper.children, upper.keys = {node.key: node}, [node.key]
        self._split_checkpoints(upper, node, at)
        node.tree.version += 1
        self.num_nodes += 1
        if not self.full and not node.children and not node.checkpoints:
            self.remove(node)
        return upper

    def _split_checkpoints(self, upper: Node, lower: Node, at: int) -> None:
        below: list[Checkpoint] = []
        for checkpoint in lower.checkpoints or ():
            if self._first_position(checkpoint) < at:
                list_checkpoint(upper, checkpoint)
            if checkpoint.position > at:
                below.append(checkpoint)
                continue
            checkpoint.nodes = tuple(node for node in checkpoint.nodes if node is not lower)
            checkpoint.home = upper
        lower.checkpoints = below or None

    def _first_position(self, checkpoint: Checkpoint) -> int:
        """Lowest token position that a checkpoint's windows reach; its own when it has only states."""
        first = checkpoint.position - 1
        for rows, (ordinal, pages) in zip(self.special, checkpoint.windows, strict=True):
            if rows.group.retention is Retention.WINDOW and len(pages):
                first = min(first, ordinal * rows.group.block_tokens)
        return first

    def add_checkpoint(self, checkpoint: Checkpoint, node: Node) -> None:
        """Keep a checkpoint's pages; list it in ``node``, which contains its position, and where its windows reach."""
        self._list_checkpoint(checkpoint, node)
        for rows, (ordinal, pages), sinks in zip(self.special, checkpoint.windows, checkpoint.sinks, strict=True):
            self.owners.keep(rows, pages, checkpoint, ordinal)
            if sinks is not None:
                self.owners.keep(rows, sinks, checkpoint, 0)

    def _list_checkpoint(self, checkpoint: Checkpoint, node: Node) -> None:
        self.owners.enter(checkpoint)
        checkpoint.home = node
        first_position = self._first_position(checkpoint)
        reached: Node | None = node
        while reached is not None and reached.parent is not None:
            list_checkpoint(reached, checkpoint)
            if reached.start <= first_position:
                break
            reached = reached.parent
        node.tree.version += 1

    def add_tail(self, node: Node, tail: bytes, pages: list[Int32Array]) -> None:
        """Let a plain node end in a partial unit; ``pages[i]`` are the tail's in each full group."""
        node.tail = tail
        for i, rows in enumerate(self.full):
            self.owners.keep(rows, pages[i], node, node.end // rows.group.block_tokens)
            held = node.pages[i] if len(node.pages) > i else pages[i][:0]
            node.pages[i:] = [np.concatenate([held, pages[i]]), *node.pages[i + 1 :]]
        node.tree.version += 1

    def remove(self, node: Node) -> None:
        """Take a node that keeps no page any more off its parent."""
        parent = node.parent
        if parent is not None and parent.children is not None and parent.keys is not None:
            if parent.children.get(node.key) is node:
                del parent.children[node.key]
                del parent.keys[bisect_left(parent.keys, node.key)]
            self.bury(node)

    def bury(self, node: Node) -> None:
        """Declare a node dead."""
        node.alive = False
        self.num_nodes -= 1
        self.owners.leave(node)
