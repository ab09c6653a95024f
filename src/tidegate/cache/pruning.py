"""How the prefix tree shrinks: nothing stays that cannot be reached, or that nothing needs."""

from __future__ import annotations

from tidegate.base import Int32Array, InternalError
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, Node, ScopeTree
from tidegate.cache.pages import PagePool
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.tree_reader import subtree


class TreePruner:
    """Drops checkpoints, ends of nodes, scopes, and the owners of evicted pages."""

    def __init__(self, tree: RadixTree) -> None:
        self.tree = tree

    def drop_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint; pages nobody else needs are freed."""
        if not checkpoint.alive:
            return
        checkpoint.alive = False
        for node in checkpoint.nodes:
            if node.checkpoints is not None:
                node.checkpoints.remove(checkpoint)
                node.tree.version += 1
        for group, (rows, (_, pages)) in enumerate(zip(self.tree.special, checkpoint.windows, strict=True)):
            sinks = checkpoint.sinks[group]
            for part in (pages, sinks):
                if part is not None and len(part):
                    self.tree.owners.release(rows, part, checkpoint)
        self.tree.owners.leave(checkpoint)
        self.prune(checkpoint.home)

    def truncate(self, node: Node, at: int) -> None:
        """Drop what a node holds from token position ``at`` on, and everything that is reached through it."""
        if at < node.end:
            at -= (at - node.start) % self.tree.unit
            self._discard_below(node)
            lost = [c for c in node.checkpoints or () if c.position > at]
        else:
            at = node.end
            lost = [c for c in node.checkpoints or () if c.position > at and c.home is node]
        for checkpoint in lost:
            self.drop_checkpoint(checkpoint)
        for i, rows in enumerate(self.tree.full):
            keep = (at - node.start) // rows.group.block_tokens
            self.tree.owners.release(rows, node.pages[i][keep:], node)
            node.pages[i] = node.pages[i][:keep]
        node.data, node.tail = node.data[: (at - node.start) * TOKEN_BYTES], b""
        node.tree.version += 1
        if not node.data:
            self.tree.remove(node)

    def clear(self, tree: ScopeTree) -> None:
        """Forget everything of one scope. Running sequences keep their pages, as private ones."""
        for node in list(subtree(tree.root)):
            if node.row >= 0:
                self.tree.close_leaf(node)
        self._discard_below(tree.root)
        tree.version += 1

    def _discard_below(self, node: Node) -> None:
        doomed = list(subtree(node))
        for child in doomed:
            if child.row >= 0:
                raise InternalError("an open leaf below pages that nobody locks", start=child.start)
            self.tree.bury(child)
        for child in doomed:
            for checkpoint in list(child.checkpoints or ()):
                self.drop_checkpoint(checkpoint)
            for i, rows in enumerate(self.tree.full):
                self.tree.owners.release(rows, child.pages[i], child)
        node.children = node.keys = None

    def prune(self, node: Node | None) -> None:
        """Remove a node nothing needs: without full groups, only checkpoints make one worth keeping."""
        while not self.tree.full and node is not None and node.alive and node.parent is not None:
            if node.children or node.checkpoints or node.row >= 0 or self.tree.is_attached(node):
                return
            parent = node.parent
            self.tree.remove(node)
            node = parent

    def drop_owners(self, pool: PagePool, pool_group: int, pages: Int32Array) -> None:
        """Take these cached pages out of the tree, each with everything that cannot be reached without it."""
        nodes, checkpoints = self._holders(pool, pool_group, pages)
        self.tree.owners.gather()
        for node, at in nodes.items():
            if node.alive:
                self.truncate(node, at)
        for checkpoint in checkpoints:
            self.drop_checkpoint(checkpoint)
        self.tree.owners.flush()

    def _holders(
        self, pool: PagePool, pool_group: int, pages: Int32Array
    ) -> tuple[dict[Node, int], dict[Checkpoint, None]]:
        """Return the nodes that keep these pages, each with the position from which on it does, and the checkpoints."""
        first: dict[Node, int] = {}
        checkpoints: dict[Checkpoint, None] = {}
        shared = pool.refs[pages] > 1
        if len({rows.block_tokens for rows in self.tree.full if rows.pool_group == pool_group}) > 1:
            shared[:] = True  # ordinals of different block sizes do not compare
        alone = pages[~shared] if shared.any() else pages
        if len(alone):
            owner, ordinals = pool.owner[alone], pool.ordinal[alone]
            begins = [0, *((owner[1:] != owner[:-1]).nonzero()[0] + 1).tolist()]
            for begin, end in zip(begins, [*begins[1:], len(alone)], strict=True):
                at = begin + int(ordinals[begin:end].argmin())
                where = pool_group, int(alone[at]), int(ordinals[at])
                self._note(self.tree.owners.owner(int(owner[begin])), where, first, checkpoints)
        for page in pages[shared].tolist():
            for holder in self.tree.owners.holders(pool, page):
                self._note(holder, (pool_group, page, int(pool.ordinal[page])), first, checkpoints)
        return first, checkpoints

    def _note(
        self,
        holder: Node | Checkpoint,
        where: tuple[int, int, int],
        first: dict[Node, int],
        checkpoints: dict[Checkpoint, None],
    ) -> None:
        """Remember what has to go for a page: a checkpoint, or a node from that block on."""
        if isinstance(holder, Checkpoint):
            checkpoints[holder] = None
            return
        pool_group, page, ordinal = where
        block = self._block_of(holder, pool_group, ordinal, page)
        first[holder] = min(ordinal * block, first.get(holder, 1 << 62))

    def _block_of(self, node: Node, pool_group: int, ordinal: int, page: int) -> int:
        """Return the block size of the full group whose block ``ordinal`` of ``node`` is on ``page``."""
        for i, rows in enumerate(self.tree.full):
            block = rows.block_tokens
            local = ordinal - node.start // block
            if rows.pool_group == pool_group and 0 <= local < len(node.pages[i]) and node.pages[i][local] == page:
                return block
        raise InternalError("a cached page is not where its owner says", page=page, ordinal=ordinal)
