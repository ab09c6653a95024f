"""Ends many sequences at once: their open leaves become closed ones, with tails and checkpoints, in array operations."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, InternalError, Retention
from tidegate.cache.closed import ClosedRows, Runs, Texts
from tidegate.cache.nodes import TOKEN_BYTES, Node, list_checkpoint
from tidegate.cache.prefix import needed_block_arrays
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.sequences import NEVER, SequenceTable
from tidegate.cache.tables import GroupRows

_FEW = 4
"""So few take less memory as plain nodes than as arrays of a batch."""


class LeafCloser:
    """Publishes the ends of sequences that have an open leaf; nothing below an open leaf can be equal to theirs."""

    def __init__(self, tree: RadixTree, sequences: SequenceTable) -> None:
        self._tree = tree
        self._sequences = sequences
        self._has_state = any(r.group.retention is Retention.STATE for r in tree.special)

    def close(self, rows: Int64Array) -> Int64Array:
        """Close the leaves of rows that have one and publish all they computed; return the rows left to do singly."""
        sequences = self._sequences
        if self._has_state:
            return rows
        leaves: list[Node] = []
        is_done = (sequences.next_publish[rows] != NEVER) & (sequences.known[rows] >= sequences.history[rows])
        for place, row in enumerate(rows.tolist()):
            leaf = sequences.leaf[row]
            if leaf is None or not is_done[place]:
                is_done[place] = False
            else:
                leaves.append(leaf)
        if leaves:
            self._close(leaves, rows if len(leaves) == len(rows) else rows[is_done])
        return rows[~is_done]

    def _close(self, leaves: list[Node], rows: Int64Array) -> None:
        sequences, tree = self._sequences, self._tree
        history = sequences.history[rows]
        start = np.array([leaf.start for leaf in leaves])
        owners = np.array([leaf.index for leaf in leaves], np.int32)
        full = []
        for group in tree.full:
            block = group.block_tokens
            full.append(self._keep(group, rows, start // block, -(-history // block), owners))
        checkpoints = self._checkpoints(leaves, history)
        texts = self._texts(rows, start, history)
        batch = ClosedRows(tree.owners, leaves, texts, full, checkpoints)
        low = self._keep_windows(batch, rows, history, checkpoints)
        batch.fold()
        for scope_tree in {leaf.tree for leaf in leaves}:
            scope_tree.version += 1
        for row, leaf in zip(rows.tolist(), leaves, strict=True):
            sequences.leaf[row] = None
            sequences.attach[row] = leaf
        if len(leaves) <= _FEW:
            batch.unfold_all()
        for place in np.flatnonzero(low < start).tolist():
            self._list_above(leaves[place], int(low[place]))

    def _checkpoints(self, leaves: list[Node], history: Int64Array) -> Int64Array:
        """Indices for the checkpoints at the leaves' ends, -1 where there is one or need be none."""
        indices = np.full(len(leaves), -1)
        if self._tree.special:
            lacking = [
                place
                for place, (leaf, position) in enumerate(zip(leaves, history.tolist(), strict=True))
                if not leaf.checkpoints or leaf.checkpoints[-1].position != position
            ]
            indices[lacking] = self._tree.owners.reserve([leaves[place] for place in lacking])
        return indices

    def _texts(self, rows: Int64Array, start: Int64Array, history: Int64Array) -> Texts:
        sequences = self._sequences
        tokens = memoryview(sequences.flat_tokens)
        offset = rows * sequences.stride
        parts = [tokens[i:j] for i, j in zip((offset + start).tolist(), (offset + history).tolist(), strict=True)]
        ends = np.cumsum(history - start) * TOKEN_BYTES
        return Texts(b"".join(parts), ends - (history - start) * TOKEN_BYTES, sequences.published[rows], history)

    def _keep_windows(
        self, batch: ClosedRows, rows: Int64Array, history: Int64Array, checkpoints: Int64Array
    ) -> Int64Array:
        """Keep the pages of the new checkpoints; return the lowest position that each one's windows reach."""
        lowest = history - 1
        owners = checkpoints.astype(np.int32)
        for group in self._tree.special:
            low, high, sinks = needed_block_arrays(group, history)
            # One position more than a query there reads, for exact repeats, where the row still has its block.
            first = np.maximum(sinks, np.maximum(0, history - (group.group.window or 1)) // group.block_tokens)
            first = np.where((first < low) & (group.pages[rows, first] < 0), low, first)
            first, high, sinks = (np.where(checkpoints >= 0, some, 0) for some in (first, high, sinks))
            windows = self._keep(group, rows, first, high, owners)
            has_sinks = group.group.sink_blocks > 0
            batch.add_windows(windows, self._keep(group, rows, sinks * 0, sinks, owners) if has_sinks else None)
            lowest = np.where(high > first, np.minimum(lowest, first * group.block_tokens), lowest)
        return np.where(checkpoints >= 0, lowest, history)

    def _list_above(self, leaf: Node, lowest: int) -> None:
        """List the checkpoint at a leaf's end in the nodes above that its windows reach into."""
        checkpoint = (leaf.checkpoints or [])[-1]
        above = leaf
        while lowest < above.start and above.parent is not None and above.parent.parent is not None:
            above = above.parent
            list_checkpoint(above, checkpoint)

    def _keep(
        self, group: GroupRows, rows: Int64Array, first: Int64Array, stop: Int64Array, owners: Int32Array
    ) -> Runs:
        """Cache the pages of blocks ``[first, stop)`` of each row."""
        counts = stop - first
        ends = np.cumsum(counts)
        ordinals = np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)
        pages = group.pages.reshape(-1)[ordinals + np.repeat(rows * group.stride, counts)]
        if pages.min(initial=0) < 0:
            raise InternalError("a sequence at rest lacks pages of its own window")
        runs = Runs(first, ends, pages)
        pool, of_page = group.pool, np.repeat(owners, counts)
        if np.count_nonzero(pool.locks[pages] != 1) == 0 or not pool.has_repeats(pages):
            self._tree.owners.keep_many(pool, pages, of_page, ordinals)
        else:  # forks that end together
            for begin, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
                part = slice(begin, end)
                self._tree.owners.keep_many(pool, pages[part], of_page[part], ordinals[part])
        return runs
