"""Lets other requests reuse what became final: open leaves, adoption of equal blocks, checkpoints, tails."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, InternalError, Retention
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, Held, Node
from tidegate.cache.prefix import kept_blocks
from tidegate.cache.pruning import TreePruner
from tidegate.cache.sequences import NEVER, SequenceTable
from tidegate.cache.token_runs import common_tokens

_NO_PAGES = np.empty(0, np.int32)


class Publisher:
    """Writes to the tree what sequences have computed. One row at a time; growth of open leaves needs no call."""

    def __init__(self, pruner: TreePruner, sequences: SequenceTable, checkpoint_every: int, *, tails: bool) -> None:
        tree = pruner.tree
        self._pruner = pruner
        self._tree = tree
        self._sequences = sequences
        self._every = checkpoint_every
        self._tails = tails
        self.unit = tree.unit
        self.declared: dict[int, frozenset[int]] = {}
        self.at_end: set[int] = set()
        self.limited = False
        """Whether any sequence was ever to publish less than all of itself."""
        self.pending_snapshots: dict[int, list[tuple[int, dict[int, int]]]] = {}

    def publish(self, row: int, history: int) -> None:
        """Publish the whole units below ``history``, adopting equal blocks that are in the tree already."""
        sequences, unit = self._sequences, self._tree.unit
        limit = int(sequences.publish_limit[row])
        target = min(history, limit, int(sequences.known[row])) // unit * unit
        if target > sequences.published[row]:
            leaf = sequences.leaf[row]
            if leaf is None:
                self._descend(row, target)
            else:
                leaf.tree.version += 1
            sequences.published[row] = target
        sequences.next_publish[row] = target + unit if target + unit <= limit else NEVER

    def stop(self, row: int) -> None:
        """Publish nothing more of this sequence."""
        if self._sequences.leaf[row] is not None:
            self.close_leaf(row)
        self._sequences.next_publish[row] = NEVER
        self._sequences.publish_limit[row] = 0
        self.limited = True
        self.at_end.discard(row)

    def close_leaf(self, row: int) -> None:
        """Make what a row published a plain node."""
        leaf = self._sequences.leaf[row]
        if leaf is not None:
            self._tree.close_leaf(leaf)

    def _attachment(self, row: int) -> Node:
        """The deepest living node on the row's path whose whole content the row has published."""
        node = self._sequences.attach[row]
        while node is not None and not node.alive and node.parent is not None:
            node = node.parent
        if node is None:
            raise InternalError("an active sequence is attached nowhere", row=row)
        return node

    def _descend(self, row: int, target: int) -> None:
        """Walk down from the attachment; adopt what equals ours, hang an open leaf where nothing does."""
        sequences, tree = self._sequences, self._tree
        node = self._attachment(row)
        position = node.end
        while position < target:
            content = sequences.tokens[row, position:target].tobytes()
            key = content[: tree.unit_bytes]
            child = node.children.get(key) if node.children is not None else None
            if child is None:
                sequences.leaf[row] = tree.add_node(node, position, row, key)
                sequences.attach[row] = node
                return
            if child.row >= 0:
                tree.close_leaf(child)
            same = common_tokens(child.data, content)
            same -= same % tree.unit
            if position + same < min(target, child.end):
                child = tree.split(child, position + same)
            if not self._adopt(row, child, position, position + same):
                continue
            position += same
            if position < child.end:
                return
            node = child
            sequences.attach[row] = node

    def _adopt(self, row: int, node: Node, begin: int, end: int) -> bool:
        """Use the tree's pages for our blocks of ``[begin, end)``; False when a reservation has taken some of them."""
        adopted: list[Int32Array] = []
        for i, rows in enumerate(self._tree.full):
            block = rows.block_tokens
            theirs = node.pages[i][(begin - node.start) // block : (end - node.start) // block]
            adopted.append(theirs)
            lent = np.flatnonzero(rows.pool.slot[theirs] < 0) if rows.pool.doomed else _NO_PAGES
            if len(lent):
                self._pruner.truncate(node, begin + int(lent[0]) * block)
                return False
        for rows, theirs in zip(self._tree.full, adopted, strict=True):
            first = begin // rows.block_tokens
            ours = rows.pages[row, first : first + len(theirs)].copy()
            differ = ours != theirs
            if differ.any():
                rows.pool.lock(theirs[differ])
                rows.swap_run(row, first, theirs)
                rows.pool.unlock(ours[differ])
        return True

    # ---- checkpoints

    def checkpoint_chunk(self, row: int, history: int) -> None:
        """Keep a checkpoint at a prefill chunk's end, as far as it is published."""
        sequences = self._sequences
        if not self._tree.special:
            return
        position = min(history, int(sequences.published[row]))
        is_far = self._every and position - sequences.last_checkpoint[row] >= self._every
        if not is_far and position not in self.declared.get(row, ()):
            return
        if position:
            self.checkpoint(row, position)

    def checkpoint(self, row: int, position: int, node: Node | None = None) -> None:
        """Keep the pages that make ``position`` (in ``node``) reusable, if the row still has all of them."""
        node = node or self._locate(row, position)
        if node is None or any(c.position == position and c.home is node for c in node.checkpoints or ()):
            return
        windows: list[Held] = []
        sinks: list[Int32Array | None] = []
        for index, rows in enumerate(self._tree.special):
            if rows.group.retention is Retention.STATE:
                page = self._snapshot(row, position, index)
                if page is None:
                    return
                windows.append((0, np.array([page], np.int32)))
                sinks.append(None)
                continue
            held, kept = kept_blocks(rows, row, position)
            if (held[1] < 0).any() or (kept is not None and (kept < 0).any()):
                return
            windows.append(held)
            sinks.append(kept)
        self._tree.add_checkpoint(Checkpoint(position, windows, sinks), node)
        self._sequences.last_checkpoint[row] = position

    def _locate(self, row: int, position: int) -> Node | None:
        """The node on the row's path that contains ``position``; None where the tree's text is another's."""
        sequences = self._sequences
        node = sequences.leaf[row]
        if node is None or position <= node.start:
            node = self._attachment(row)
        while position <= node.start and node.parent is not None:
            node = node.parent
        while node.row < 0 and position > node.end:
            rest = sequences.tokens[row, node.end : position].tobytes()
            if node.tail.startswith(rest):
                break
            key = sequences.tokens[row, node.end : node.end + self._tree.unit].tobytes()
            child = node.children.get(key) if node.children is not None else None
            if child is None:
                return None
            if child.row >= 0:  # another sequence's, which has published the same text since
                self._tree.close_leaf(child)
            if not child.data.startswith(rest[: len(child.data)]):
                return None
            node = child
        return node if node.parent is not None else None

    def reattach(self, row: int) -> None:
        """After going back: attach where the row's published prefix ends."""
        node = self._attachment(row)
        while node.parent is not None and node.end > self._sequences.published[row]:
            node = node.parent
        left = self._sequences.attach[row]
        self._sequences.attach[row] = node
        self._pruner.prune(left)

    def state_pages(self, row: int, position: int) -> dict[int, int] | None:
        """Pages of a kept snapshot at ``position`` of this sequence, by group."""
        node = self._locate(row, position)
        for checkpoint in (node.checkpoints or ()) if node is not None else ():
            if checkpoint.position == position and checkpoint.home is node:
                return {
                    self._tree.rows.index(rows): int(checkpoint.windows[index][1][0])
                    for index, rows in enumerate(self._tree.special)
                    if rows.group.retention is Retention.STATE and rows.pool.slot[checkpoint.windows[index][1][0]] >= 0
                } or None
        return None

    def _snapshot(self, row: int, position: int, index: int) -> int | None:
        group = self._tree.rows.index(self._tree.special[index])
        for end, pages in self.pending_snapshots.get(row, ()):
            if end == position and group in pages:
                return pages[group]
        return None

    def finish(self, row: int) -> None:
        """Publish a closing sequence's last partial block and a checkpoint at its end."""
        sequences = self._sequences
        history = int(min(sequences.history[row], sequences.publish_limit[row], sequences.known[row]))
        if not history or (sequences.next_publish[row] == NEVER and row not in self.at_end):
            self.close_leaf(row)
            return
        self.publish(row, history)
        self.close_leaf(row)
        node = None
        if history > sequences.published[row]:
            node = self._publish_tail(row, history) if self._tails else None
            if node is None:
                history = int(sequences.published[row])
        if self._tree.special and history:
            pending = self.pending_snapshots.setdefault(row, [])
            own = self._own_state(row) if history == sequences.history[row] else {}
            pending.append((history, own))
            self.checkpoint(row, history, node)
            pending.pop()

    def _own_state(self, row: int) -> dict[int, int]:
        """The state page itself is the snapshot at the end of its sequence."""
        return {
            group: int(rows.pages[row, 0])
            for group, rows in enumerate(self._tree.rows)
            if rows.group.retention is Retention.STATE and rows.pages[row, 0] >= 0
        }

    def _publish_tail(self, row: int, history: int) -> Node | None:
        """Publish the last partial unit; return the node that holds it, be it ours or an older one."""
        sequences, tree = self._sequences, self._tree
        begin = int(sequences.published[row])
        node = self._locate(row, begin) if begin else self._attachment(row)
        if node is None:
            return None
        tail = sequences.tokens[row, begin:history].tobytes()
        if node.end > begin:
            if node.data[(begin - node.start) * TOKEN_BYTES :].startswith(tail):
                return node
            node = tree.split(node, begin)
        older = tree.reader.holder_of_tail(node, tail)
        if older is not None:
            return older
        if node.tail or node.parent is None:
            node = tree.add_node(node, begin, -1, tail)
        pages = []
        for rows in tree.full:
            block = rows.group.block_tokens
            pages.append(rows.pages[row, begin // block : -(-history // block)].copy())
        tree.add_tail(node, tail, pages)
        sequences.attach[row] = node
        return node
