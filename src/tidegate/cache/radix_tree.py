"""The prefix tree: which token runs are cached, and on which pages.

Path-compressed: a node is a run of whole *units* (the smallest length that is a block border in every group) with one
byte string of int32 tokens and one page-id array per full group. Comparison is exact, so no collision can leak pages
between users. Children are found by their first unit; kept sorted, a neighbour of the bisection point shares the
longest prefix, which makes partial matches logarithmic. A node may end in a *tail* of less than a unit, published when
its sequence closed.

A running sequence publishes through an *open leaf*: ``row >= 0``, its content is read from the sequence's arrays and
its length is ``published - start``. It becomes a plain node when another sequence reaches it or its own closes.

Windowed and state pages are kept by *checkpoints*: at ``h``, the pages a sequence continuing at ``h`` needs. A checkpoint
is listed in every node that its windows reach into, and goes as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.base import Int32Array, InternalError, Retention
from tidegate.cache.pages import PagePool
from tidegate.cache.sequences import SequenceTable
from tidegate.cache.tables import GroupRows

TOKEN_BYTES = 4
Held = tuple[int, Int32Array]
"""Pages of consecutive blocks: first ordinal, page ids."""


@dataclass(frozen=True, slots=True)
class ReuseScope:
    """Selects the tree. Scopes share nothing; every part is typed, so a salt never equals an adapter.

    ``lora_id`` names an adapter *with* its content version; ``salt`` isolates tenants. None and "" are different.
    """

    lora_id: str | int | None = None
    salt: str | None = None
    lora_version: str | int = 0


class ScopeTree:
    """One scope's tree. ``version`` changes whenever a match in it could come out otherwise."""

    __slots__ = ("root", "scope", "version")

    def __init__(self, scope: ReuseScope) -> None:
        self.scope = scope
        self.root = Node(self, None, 0, -1)
        self.version = 0


class Node:
    """A run of cached blocks; see the module text."""

    __slots__ = ("alive", "checkpoints", "children", "data", "index", "keys", "pages", "parent", "row", "start", "tail", "tree")

    def __init__(self, tree: ScopeTree, parent: Node | None, start: int, row: int) -> None:
        self.tree = tree
        self.parent = parent
        self.start = start
        self.row = row
        self.data = b""
        self.tail = b""
        self.pages: list[Int32Array] = []
        self.children: dict[bytes, Node] | None = None
        self.keys: list[bytes] | None = None
        self.checkpoints: list[Checkpoint] | None = None
        self.index = -1
        self.alive = True

    @property
    def end(self) -> int:
        """Token position after the node's whole units; not for open leaves."""
        return self.start + len(self.data) // TOKEN_BYTES


class Checkpoint:
    """Pages of windowed and state groups that make ``position`` reusable, by ``RadixTree.special`` order."""

    __slots__ = ("alive", "home", "index", "nodes", "position", "sinks", "windows")

    def __init__(self, position: int, windows: list[Held], sinks: list[Int32Array | None]) -> None:
        self.position = position
        self.windows = windows
        self.sinks = sinks
        self.nodes: list[Node] = []
        self.home: Node | None = None
        self.index = -1
        self.alive = True


class RadixTree:
    """All scopes' trees, and the sole writer of what pages are cached for."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable, unit: int) -> None:
        self.unit = unit
        self.unit_bytes = unit * TOKEN_BYTES
        self.rows = rows
        self.full = [r for r in rows if r.group.retention is Retention.FULL]
        self.special = [r for r in rows if r.group.retention is not Retention.FULL]
        self._sequences = sequences
        self._trees: dict[ReuseScope, ScopeTree] = {}
        self.owners: list[Node | Checkpoint | None] = []
        self._free_owners: list[int] = []
        self._shared: dict[tuple[int, int], set[Node | Checkpoint]] = {}
        self.num_nodes = 0

    # ---- reading

    def find(self, scope: ReuseScope) -> ScopeTree | None:
        """Return the scope's tree, if it has one."""
        return self._trees.get(scope)

    def tree(self, scope: ReuseScope) -> ScopeTree:
        """Return the scope's tree, made if need be."""
        found = self._trees.get(scope)
        if found is None:
            found = self._trees[scope] = ScopeTree(scope)
        return found

    def trees(self) -> list[ScopeTree]:
        """Return every scope's tree."""
        return list(self._trees.values())

    def forget(self, scope: ReuseScope) -> None:
        """Remove a scope whose root has been emptied."""
        del self._trees[scope]

    def content(self, node: Node) -> bytes:
        """Return the tokens of a node's whole units."""
        if node.row < 0:
            return node.data
        sequences = self._sequences
        return sequences.tokens[node.row, node.start : sequences.published[node.row]].tobytes()

    def pages_of(self, node: Node, full_index: int) -> Int32Array:
        """Return a node's pages in a full group, the tail's included."""
        if node.row < 0:
            return node.pages[full_index]
        rows = self.full[full_index]
        block = rows.group.block_tokens
        stop = int(self._sequences.published[node.row]) // block
        return rows.pages[node.row, node.start // block : stop]

    def walk(self, tree: ScopeTree, data: bytes) -> tuple[list[tuple[Node, int]], int]:
        """Follow ``data`` as far as it goes: nodes with the tokens matched in each, and their sum."""
        node, position, unit_bytes = tree.root, 0, self.unit_bytes
        path: list[tuple[Node, int]] = []
        while node.children is not None:
            child = node.children.get(data[position : position + unit_bytes])
            if child is None:
                break
            content = child.data if child.row < 0 else self.content(child)
            size = len(content)
            part = data[position : position + size]
            if part == content and size:
                path.append((child, size // TOKEN_BYTES))
                position += size
                node = child
                continue
            if size:
                same = common_tokens(part, content)
                path.append((child, same))
                return path, position // TOKEN_BYTES + same
            break
        best, same = self._nearest(node, data[position : position + unit_bytes])
        if best is node:
            path[-1] = (node, path[-1][1] + same)
        elif best is not None:
            path.append((best, same))
        return path, position // TOKEN_BYTES + same

    def _nearest(self, node: Node, key: bytes) -> tuple[Node | None, int]:
        """Return who shares most tokens of a partial unit: a child, or the node by its own tail."""
        best: Node | None = None
        same = 0
        if not key:
            return best, same
        if node.tail:
            same = common_tokens(key, node.tail)
            best = node if same else None
        if node.keys and node.children is not None:
            at = bisect_left(node.keys, key)
            for neighbour in node.keys[max(0, at - 1) : at + 1]:
                shared = common_tokens(key, neighbour)
                if shared > same:
                    best, same = node.children[neighbour], shared
        return best, same

    def holder_of_tail(self, node: Node, tail: bytes) -> Node | None:
        """Return who caches all of a partial unit after ``node`` already."""
        holder, same = self._nearest(node, tail)
        return holder if same * TOKEN_BYTES == len(tail) else None

    def subtree(self, node: Node) -> Iterator[Node]:
        """Yield a node's descendants, parents first."""
        stack = list(node.children.values()) if node.children else []
        while stack:
            child = stack.pop()
            yield child
            if child.children:
                stack.extend(child.children.values())

    # ---- growing

    def add_node(self, parent: Node, start: int, row: int, key: bytes) -> Node:
        """Hang a new node under ``parent``; ``row >= 0`` makes an open leaf."""
        node = Node(parent.tree, parent, start, row)
        node.index = self._new_owner(node)
        if parent.children is None or parent.keys is None:
            parent.children, parent.keys = {}, []
        if key in parent.children:
            raise InternalError("two children with the same first unit", start=start)
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
            self._keep(rows, pages, node, node.start // block)
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
        upper.index = self._new_owner(upper)
        upper.data, node.data = node.data[:cut], node.data[cut:]
        key = upper.data[: self.unit_bytes]
        parent.children[key] = upper
        for i, rows in enumerate(self.full):
            blocks = (at - upper.start) // rows.group.block_tokens
            pages = node.pages[i][:blocks].copy()
            self._hand_over(rows, pages, node, upper)
            upper.pages.append(pages)
            node.pages[i] = node.pages[i][blocks:].copy()
        node.parent, node.start = upper, at
        lower_key = node.data[: self.unit_bytes]
        upper.children, upper.keys = {lower_key: node}, [lower_key]
        self._split_checkpoints(upper, node, at)
        node.tree.version += 1
        self.num_nodes += 1
        if not self.full and not node.children and not node.checkpoints:
            self._remove(node)
        return upper

    def _hand_over(self, rows: GroupRows, pages: Int32Array, old: Node, new: Node) -> None:
        rows.pool.owner[pages] = new.index
        if self._shared:
            for page in pages[rows.pool.refs[pages] > 1].tolist():
                holders = self._shared[rows.group.pool_group, page]
                holders.discard(old)
                holders.add(new)

    def _split_checkpoints(self, upper: Node, lower: Node, at: int) -> None:
        below: list[Checkpoint] = []
        for checkpoint in lower.checkpoints or ():
            if self._first_position(checkpoint) < at:
                _list(upper, checkpoint)
            if checkpoint.position > at:
                below.append(checkpoint)
                continue
            checkpoint.nodes.remove(lower)
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
        """List a checkpoint in ``node``, which contains its position, and in each ancestor its windows reach into."""
        checkpoint.index = self._new_owner(checkpoint)
        for group, (rows, (ordinal, pages)) in enumerate(zip(self.special, checkpoint.windows, strict=True)):
            sinks = checkpoint.sinks[group]
            for part, first in ((pages, ordinal), (sinks, 0)):
                if part is not None and len(part):
                    self._keep(rows, part, checkpoint, first)
        checkpoint.home = node
        first_position = self._first_position(checkpoint)
        reached: Node | None = node
        while reached is not None and reached.parent is not None:
            _list(reached, checkpoint)
            if reached.start <= first_position:
                break
            reached = reached.parent
        node.tree.version += 1

    def _keep(self, rows: GroupRows, pages: Int32Array, owner: Node | Checkpoint, first: int) -> None:
        """Cache pages for one more owner, remembering every owner of those that have one already.

        Checkpoints overlap; nodes share a page when they part inside a unit that spans several blocks.
        """
        pool, pool_group = rows.pool, rows.group.pool_group
        for page in pages[pool.refs[pages] > 0].tolist():
            holders = self._shared.get((pool_group, page))
            if holders is None:
                older = self.owners[pool.owner[page]]
                holders = self._shared[pool_group, page] = set() if older is None else {older}
            holders.add(owner)
        pool.cache(pages, owner.index, first)

    def _release(self, rows: GroupRows, pages: Int32Array, owner: Node | Checkpoint) -> None:
        """Undo ``_keep``."""
        pool, pool_group = rows.pool, rows.group.pool_group
        if self._shared:
            for page in pages[pool.refs[pages] > 1].tolist():
                holders = self._shared[pool_group, page]
                holders.discard(owner)
                pool.owner[page] = next(iter(holders)).index
                if len(holders) == 1:
                    del self._shared[pool_group, page]
        pool.uncache(pages)

    def holders(self, pool: PagePool, pool_group: int, page: int) -> list[Node | Checkpoint]:
        """Return everything that keeps a cached page."""
        shared = self._shared.get((pool_group, page))
        if shared is not None:
            return list(shared)
        owner = self.owners[pool.owner[page]]
        if owner is None:
            raise InternalError("a cached page has no owner", page=page)
        return [owner]

    def add_tail(self, node: Node, tail: bytes, pages: list[Int32Array]) -> None:
        """Let a plain node end in a partial unit; ``pages[i]`` are the tail's in each full group."""
        node.tail = tail
        for i, rows in enumerate(self.full):
            self._keep(rows, pages[i], node, node.end // rows.group.block_tokens)
            held = node.pages[i] if len(node.pages) > i else pages[i][:0]
            node.pages[i:] = [np.concatenate([held, pages[i]]), *node.pages[i + 1 :]]
        node.tree.version += 1

    # ---- shrinking

    def drop_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint; pages nobody else needs are freed."""
        if not checkpoint.alive:
            return
        checkpoint.alive = False
        for node in checkpoint.nodes:
            if node.checkpoints is not None:
                node.checkpoints.remove(checkpoint)
                node.tree.version += 1
        for group, (rows, (_, pages)) in enumerate(zip(self.special, checkpoint.windows, strict=True)):
            sinks = checkpoint.sinks[group]
            for part in (pages, sinks):
                if part is not None and len(part):
                    self._release(rows, part, checkpoint)
        self._end_owner(checkpoint.index)
        self.prune(checkpoint.home)

    def truncate(self, node: Node, at: int) -> None:
        """Drop what a node holds from token position ``at`` on, and everything that is reached through it."""
        if at < node.end:
            at -= (at - node.start) % self.unit
            self._discard_below(node)
            lost = [c for c in node.checkpoints or () if c.position > at]
        else:
            at = node.end
            lost = [c for c in node.checkpoints or () if c.position > at and c.home is node]
        for checkpoint in lost:
            self.drop_checkpoint(checkpoint)
        for i, rows in enumerate(self.full):
            keep = (at - node.start) // rows.group.block_tokens
            self._release(rows, node.pages[i][keep:], node)
            node.pages[i] = node.pages[i][:keep]
        node.data, node.tail = node.data[: (at - node.start) * TOKEN_BYTES], b""
        node.tree.version += 1
        if not node.data:
            self._remove(node)

    def clear(self, tree: ScopeTree) -> None:
        """Forget everything of one scope. Running sequences keep their pages, as private ones."""
        for node in list(self.subtree(tree.root)):
            if node.row >= 0:
                self.close_leaf(node)
        self._discard_below(tree.root)
        tree.version += 1

    def _discard_below(self, node: Node) -> None:
        doomed = list(self.subtree(node))
        for child in doomed:
            if child.row >= 0:
                raise InternalError("an open leaf below pages that nobody locks", start=child.start)
            self._bury(child)
        for child in doomed:
            for checkpoint in list(child.checkpoints or ()):
                self.drop_checkpoint(checkpoint)
            for i, rows in enumerate(self.full):
                self._release(rows, child.pages[i], child)
        node.children = node.keys = None

    def _remove(self, node: Node) -> None:
        parent = node.parent
        if parent is None or parent.children is None or parent.keys is None:
            return
        for key, child in parent.children.items():
            if child is node:
                del parent.children[key]
                del parent.keys[bisect_left(parent.keys, key)]
                break
        self._bury(node)

    def _bury(self, node: Node) -> None:
        node.alive = False
        self.num_nodes -= 1
        self._end_owner(node.index)

    def prune(self, node: Node | None) -> None:
        """Remove a node nothing needs: without full groups, only checkpoints make one worth keeping."""
        while not self.full and node is not None and node.alive and node.parent is not None:
            if node.children or node.checkpoints or node.row >= 0:
                return
            parent = node.parent
            self._remove(node)
            node = parent

    def drop_owners(self, pool: PagePool, pool_group: int, pages: Int32Array) -> None:
        """Take these cached pages out of the tree, each with everything that cannot be reached without it."""
        first: dict[Node, int] = {}
        checkpoints: dict[Checkpoint, None] = {}
        for ordinal, page in zip(pool.ordinal[pages].tolist(), pages.tolist(), strict=True):
            for holder in self.holders(pool, pool_group, page):
                if isinstance(holder, Checkpoint):
                    checkpoints[holder] = None
                else:
                    block = self._block_of(holder, pool_group, ordinal, page)
                    first[holder] = min(ordinal * block, first.get(holder, 1 << 62))
        for node, at in first.items():
            if node.alive:
                self.truncate(node, at)
        for checkpoint in checkpoints:
            self.drop_checkpoint(checkpoint)

    def _block_of(self, node: Node, pool_group: int, ordinal: int, page: int) -> int:
        """Return the block size of the full group whose block ``ordinal`` of ``node`` is on ``page``."""
        for i, rows in enumerate(self.full):
            block = rows.group.block_tokens
            local = ordinal - node.start // block
            if rows.group.pool_group == pool_group and 0 <= local < len(node.pages[i]) and node.pages[i][local] == page:
                return block
        raise InternalError("a cached page is not where its owner says", page=page, ordinal=ordinal)

    # ---- owners

    def _new_owner(self, owner: Node | Checkpoint) -> int:
        if self._free_owners:
            index = self._free_owners.pop()
            self.owners[index] = owner
            return index
        self.owners.append(owner)
        return len(self.owners) - 1

    def _end_owner(self, index: int) -> None:
        self.owners[index] = None
        self._free_owners.append(index)


def common_tokens(a: bytes, b: bytes) -> int:
    """Return how many leading int32 tokens two byte strings share."""
    size = min(len(a), len(b)) // TOKEN_BYTES
    if not size:
        return 0
    differ = np.frombuffer(a, np.int32, size) != np.frombuffer(b, np.int32, size)
    at = int(differ.argmax())
    return at if differ[at] else size


def _list(node: Node, checkpoint: Checkpoint) -> None:
    if node.checkpoints is None:
        node.checkpoints = []
    insort(node.checkpoints, checkpoint, key=lambda c: c.position)
    checkpoint.nodes.append(node)
