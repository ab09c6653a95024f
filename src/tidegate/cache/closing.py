"""Ends many sequences at once: open leaves become closed ones, with tails and checkpoints, in few array operations."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, InternalError, Retention
from tidegate.cache.candidate import Candidate
from tidegate.cache.closed import NO_TOKENS, ClosedRows, Runs, Texts
from tidegate.cache.nodes import Node, list_checkpoint
from tidegate.cache.prefix import needed_block_arrays
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.sequences import NEVER, SequenceTable
from tidegate.cache.tables import GroupRows, OwnedPages

_FEW = 64
"""So few become plain nodes at once, in well under a millisecond: the first look-up of each is then as fast as any."""


class LeafCloser:
    """Publishes the ends of sequences that have an open leaf; nothing below an open leaf can be equal to theirs."""

    def __init__(self, tree: RadixTree, sequences: SequenceTable, started: dict[int, Candidate]) -> None:
        self._tree = tree
        self._sequences = sequences
        self._started = started
        self._has_state = any(r.group.retention is Retention.STATE for r in tree.special)

    def close(self, rows: Int64Array) -> tuple[Int64Array, list[OwnedPages] | None]:
        """Close the leaves of rows that have one and publish all they computed.

        Returns the rows left to do singly and, if there are none, what pages the rows own in each group.
        """
        sequences = self._sequences
        if self._has_state or not len(rows):
            return rows, None
        leaf = sequences.leaf
        leaves = [leaf[row] for row in rows.tolist()]
        history = sequences.history[rows]
        is_done = (sequences.next_publish[rows] != NEVER) & (sequences.known[rows] >= history)
        is_done &= history - sequences.published[rows] < self._tree.unit
        if None not in leaves and is_done.all():
            return rows[:0], self._close([one for one in leaves if one is not None], rows)
        is_done &= np.array([one is not None for one in leaves])
        done = rows[is_done]
        if len(done):
            self._close([one for row in done.tolist() if (one := leaf[row]) is not None], done)
        return rows[~is_done], None

    def _close(self, leaves: list[Node], rows: Int64Array) -> list[OwnedPages]:
        sequences, tree = self._sequences, self._tree
        history = sequences.history[rows]
        start = np.array([leaf.start for leaf in leaves])
        checkpoints = self._checkpoints(leaves, rows, history)
        texts = self._texts(rows, start, history)
        batch = ClosedRows(tree.owners, leaves, texts, checkpoints)
        num_tokens = int(sequences.capacity[rows].max())
        owned = [group.owned_pages(rows, num_tokens) for group in tree.rows]
        owners = np.array([leaf.index for leaf in leaves], np.int32)
        lowest = history
        for group, pages in zip(tree.rows, owned, strict=True):
            if group.group.retention is Retention.FULL:
                block = group.block_tokens
                batch.full.append(self._keep(group, pages, start // block, -(-history // block), owners))
            else:
                lowest = np.minimum(lowest, self._keep_window(batch, group, pages, rows, history))
        batch.fold()
        for scope_tree in {leaf.tree for leaf in leaves}:
            scope_tree.version += 1
        for row, leaf in zip(rows.tolist(), leaves, strict=True):
            sequences.leaf[row] = None
            sequences.attach[row] = leaf
        if len(leaves) <= _FEW:
            batch.unfold_all()
        for place in (lowest < start).nonzero()[0].tolist():
            self._list_above(leaves[place], int(lowest[place]))
        return owned

    def _checkpoints(self, leaves: list[Node], rows: Int64Array, history: Int64Array) -> Int64Array:
        """Indices for the checkpoints at the leaves' ends, -1 where there is one or need be none."""
        indices = np.full(len(leaves), -1)
        if not self._tree.special:
            return indices
        is_lacking = np.ones(len(leaves), np.bool_)
        for place in (self._sequences.last_checkpoint[rows] == history).nonzero()[0].tolist():
            kept = leaves[place].checkpoints
            is_lacking[place] = not kept or kept[-1].position != history[place]
        if np.count_nonzero(is_lacking) == len(leaves):
            indices[:] = self._tree.owners.reserve(leaves)
        else:
            lacking = is_lacking.nonzero()[0]
            indices[lacking] = self._tree.owners.reserve([leaves[place] for place in lacking.tolist()])
        return indices

    def _texts(self, rows: Int64Array, start: Int64Array, history: Int64Array) -> Texts:
        sequences = self._sequences
        given = np.minimum(sequences.given[rows], history)
        given[start * 2 > given] = 0  # a prompt that is mostly above the leaf is not kept for the little below
        begin = rows * sequences.stride
        spans = zip((begin + np.maximum(start, given)).tolist(), (begin + history).tolist(), strict=True)
        started, tokens = self._started, sequences.flat_tokens.data
        # One by one, for they fill what earlier ones of that size left; memory that is new costs more than copying.
        others = [tokens[i:j].tobytes() for i, j in spans]
        prompts = [
            started[row].tokens if is_used else NO_TOKENS
            for row, is_used in zip(rows.tolist(), given.tolist(), strict=True)
        ]
        return Texts(prompts, others, given, sequences.published[rows], history)

    def _keep_window(
        self, batch: ClosedRows, group: GroupRows, owned: OwnedPages, rows: Int64Array, history: Int64Array
    ) -> Int64Array:
        """Keep one group's pages of the new checkpoints; return the lowest position that each one's window reaches."""
        low, high, sinks = needed_block_arrays(group, history)
        # One position more than a query there reads, for exact repeats, where the row still has its block.
        first = np.maximum(sinks, np.maximum(0, history - (group.group.window or 1)) // group.block_tokens)
        kept = group.pages[rows, np.minimum(first, group.stride - 1)] >= 0
        first = np.where((first < low) & ~kept, low, first)
        is_new = batch.checkpoints >= 0
        if np.count_nonzero(is_new) < len(is_new):
            first, high, sinks = np.where(is_new, (first, high, sinks), 0)
        owners = batch.checkpoints.astype(np.int32)
        batch.windows.append(self._keep(group, owned, first, high, owners))
        batch.sinks.append(self._keep(group, owned, sinks * 0, sinks, owners) if group.group.sink_blocks else None)
        return np.where(high > first, first * group.block_tokens, history)

    def _list_above(self, leaf: Node, lowest: int) -> None:
        """List the checkpoint at a leaf's end in the nodes above that its windows reach into."""
        checkpoint = (leaf.checkpoints or [])[-1]
        above = leaf
        while lowest < above.start and above.parent is not None and above.parent.parent is not None:
            above = above.parent
            list_checkpoint(above, checkpoint)

    def _keep(
        self, group: GroupRows, owned: OwnedPages, first: Int64Array, stop: Int64Array, owners: Int32Array
    ) -> Runs:
        """Cache the pages of blocks ``[first, stop)`` of each row."""
        table, blocks = owned
        is_kept = (blocks >= first.astype(np.int32)[:, None]) & (blocks < stop.astype(np.int32)[:, None])
        pages = table[is_kept]
        counts = stop - first
        ends: Int64Array = counts.cumsum()
        if pages.min(initial=0) < 0 or len(pages) != ends[-1]:
            raise InternalError("a sequence at rest lacks pages of its own window")
        of_page = np.repeat(owners, counts)
        ordinals = np.broadcast_to(blocks, table.shape)[is_kept]
        pool, keep_many = group.pool, self._tree.owners.keep_many
        if np.count_nonzero(pool.locks[pages] != 1) == 0 or not pool.has_repeats(pages):
            keep_many(pool, pages, of_page, ordinals)
        else:  # forks that end together
            for begin, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
                keep_many(pool, pages[begin:end], of_page[begin:end], ordinals[begin:end])
        return Runs(first, ends, pages.astype(np.int32))
