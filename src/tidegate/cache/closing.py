"""Ends many sequences at once: open leaves become plain nodes, with tails and checkpoints, in few array operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int32Array, Int64Array, InternalError, Retention
from tidegate.cache.nodes import Checkpoint, Held, Node
from tidegate.cache.owners import Owner
from tidegate.cache.prefix import needed_blocks
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.sequences import NEVER, SequenceTable
from tidegate.cache.tables import GroupRows

Part = tuple[Owner, Int32Array, int]
"""An owner, the pages it keeps from now on, and the ordinal of the first."""


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
        done: list[tuple[Node, int, int]] = []
        left: list[int] = []
        histories = sequences.history[rows].tolist()
        for row, history in zip(rows.tolist(), histories, strict=True):
            leaf = sequences.leaf[row]
            if leaf is None or sequences.next_publish[row] == NEVER or sequences.known[row] < history:
                left.append(row)
            else:
                done.append((leaf, row, history))
        if done:
            self._fill_nodes(done)
            self._keep_checkpoints(done)
        return np.array(left, np.int64)

    def _fill_nodes(self, done: Sequence[tuple[Node, int, int]]) -> None:
        sequences, full = self._sequences, self._tree.full
        kept: list[list[Part]] = [[] for _ in full]
        for leaf, row, history in done:
            start, stop = leaf.start, int(sequences.published[row])
            tokens = sequences.tokens[row]
            leaf.data, leaf.tail = tokens[start:stop].tobytes(), tokens[stop:history].tobytes()
            leaf.pages = []
            for rows_of, parts in zip(full, kept, strict=True):
                block = rows_of.block_tokens
                pages = rows_of.pages[row, start // block : -(-history // block)].copy()
                leaf.pages.append(pages)
                parts.append((leaf, pages, start // block))
            leaf.row = -1
            sequences.leaf[row] = None
            sequences.attach[row] = leaf
            leaf.tree.version += 1
        for rows_of, parts in zip(full, kept, strict=True):
            self._keep(rows_of, parts)

    def _keep_checkpoints(self, done: Sequence[tuple[Node, int, int]]) -> None:
        special = self._tree.special
        if not special:
            return
        kept: list[list[Part]] = [[] for _ in special]
        for leaf, row, history in done:
            if leaf.checkpoints and leaf.checkpoints[-1].position == history:
                continue
            windows: list[Held] = []
            sinks: list[Int32Array | None] = []
            for rows_of in special:
                low, high, num_sinks = needed_blocks(rows_of, history)
                table = rows_of.pages[row]
                wanted = max(num_sinks, max(0, history - (rows_of.group.window or 1)) // rows_of.block_tokens)
                first = wanted if wanted < low and table[wanted] >= 0 else low
                windows.append((first, table[first:high].copy()))
                sinks.append(table[:num_sinks].copy() if num_sinks else None)
            checkpoint = Checkpoint(history, windows, sinks)
            self._tree.enter_checkpoint(checkpoint, leaf)
            for parts, (first, pages), head in zip(kept, windows, sinks, strict=True):
                parts.append((checkpoint, pages, first))
                if head is not None:
                    parts.append((checkpoint, head, 0))
        for rows_of, parts in zip(special, kept, strict=True):
            self._keep(rows_of, parts)

    def _keep(self, rows_of: GroupRows, parts: Sequence[Part]) -> None:
        """Cache the parts' pages in one go; only those that have another owner are looked at singly."""
        if not parts:
            return
        owners, pool = self._tree.owners, rows_of.pool
        pages = np.concatenate([part[1] for part in parts])
        lengths = np.array([len(part[1]) for part in parts])
        if pages.min(initial=0) < 0:
            raise InternalError("a sequence at rest lacks pages of its own window")
        if pool.has_repeats(pages):
            for owner, some, first in parts:
                owners.keep(rows_of, some, owner, first)
            return
        part_of = np.repeat(np.arange(len(parts)), lengths)
        for place in np.flatnonzero(pool.refs[pages]).tolist():
            owners.share(pool, rows_of.pool_group, int(pages[place]), parts[part_of[place]][0])
        firsts = np.array([part[2] for part in parts]) - (np.cumsum(lengths) - lengths)
        pool.refs[pages] += 1
        pool.owner[pages] = np.array([part[0].index for part in parts], np.int32)[part_of]
        pool.ordinal[pages] = np.arange(len(pages)) + firsts[part_of]
