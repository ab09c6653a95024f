"""How much of a prompt can be reused: one length for the whole request, agreed by all groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.base import BAD_PAGE, Int32Array, Int64Array, Retention
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, Held, Node, ReuseScope
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.ranges import ceil_div
from tidegate.cache.tables import GroupRows
from tidegate.cache.tree_reader import Path


class PrefixMatch(NamedTuple):
    """What the cache holds of a prompt.

    ``reused`` tokens can be taken over; ``raw`` tokens are the longest cached run equal to the prompt, at most all but
    its last token. ``held[g]`` are group ``g``'s pages to take, as runs of blocks.
    """

    reused: int = 0
    raw: int = 0
    held: tuple[tuple[Held, ...], ...] = ()
    path: Sequence[tuple[Node, int]] = ()
    unit: int = 1
    reason: str = "nothing of it is cached in its scope"

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._asdict().items() if name != "path")
        return f"PrefixMatch({', '.join(shown)})"

    def explain(self) -> str:
        """Say why not more is reused."""
        if not self.raw:
            return f"reuses 0 tokens: {self.reason}"
        if self.reused == self.raw:
            return f"reuses {self.reused} tokens: all that is cached of it"
        return f"reuses {self.reused} of {self.raw} cached tokens: {self.reason}"


NO_MATCH = PrefixMatch()


class Matcher:
    """Pure look-ups in the tree."""

    def __init__(self, tree: RadixTree, *, partial: bool) -> None:
        self._tree = tree
        self._partial = partial
        self._granular = f"less than one match unit of {tree.unit} tokens is left, and partial reuse is off"
        # Each group's place among those of its kind, and the block of those that keep all.
        self._places = [
            (tree.full.index(rows), rows.block_tokens) if rows in tree.full else (tree.special.index(rows), 0)
            for rows in tree.rows
        ]

    def match(self, scope: ReuseScope, tokens: Int32Array) -> PrefixMatch:
        """Return the longest reusable prefix of ``tokens``, at least one token short of all of it."""
        tree = self._tree
        scope_tree = tree.find(scope)
        limit = len(tokens) - 1
        if scope_tree is None or limit < 1:
            return NO_MATCH
        path, raw = tree.reader.walk(scope_tree, tokens)
        if not path:
            return NO_MATCH
        if raw > limit:
            raw = limit
        for rows in tree.full:
            if rows.pool.doomed:
                raw = self._without_doomed(path, raw)
                break
        if not raw:
            return NO_MATCH
        reused, special, reason = self._agree(path, raw)
        if not reused:
            return PrefixMatch(0, raw, (), path, tree.unit, reason)
        held: list[tuple[Held, ...]] = []
        for i, block in self._places:
            held.append(((0, tree.reader.gather(path, i)[: -(-reused // block)]),) if block else special[i])
        return PrefixMatch(reused, raw, tuple(held), path, tree.unit, reason)

    def _without_doomed(self, path: Path, raw: int) -> int:
        for i, rows in enumerate(self._tree.full):
            missing = np.flatnonzero(rows.pool.slot[self._tree.reader.gather(path, i)] < 0)
            if len(missing):
                raw = min(raw, int(missing[0]) * rows.block_tokens)
        return raw

    def _agree(self, path: Path, raw: int) -> tuple[int, list[tuple[Held, ...]], str]:
        """Return the reused length, the special groups' pages for it, and what stood against more."""
        unit = self._tree.unit
        border = raw - raw % unit
        if not self._tree.special:
            return raw if self._partial else border, [], self._granular
        if self._partial or raw == border:
            found = self._one_checkpoint(path, raw)
            if found is not None:
                return raw, found, self._granular if raw == border else "its last block is shared"
        if border and raw != border:
            found = self._one_checkpoint(path, border)
            if found is not None:
                return border, found, self._granular
        reason = "a windowed or state group keeps no checkpoint there"
        # No longer prefix than this can be served, and most often a single checkpoint serves this one.
        reach = self._reach(path, raw)
        if reach < raw:
            reach -= reach % unit
        if not reach:
            return 0, [], reason
        if reach < border:
            found = self._one_checkpoint(path, reach)
            if found is not None:
                return reach, found, reason
        return (*self._any_checkpoints(path, raw), reason)

    def _one_checkpoint(self, path: Path, length: int) -> list[tuple[Held, ...]] | None:
        """Pages for ``length`` from a single checkpoint, the usual case."""
        for node, same in reversed(path):
            for checkpoint in reversed(node.checkpoints or ()):
                if checkpoint.position < length:
                    break
                if checkpoint.home is not node and _agrees_up_to(checkpoint, node, same) < length:
                    continue
                found: list[tuple[Held, ...]] = []
                for rows in self._tree.special:
                    part = self._serve(rows, checkpoint, len(found), length)
                    if part is None:
                        break
                    found.append(part)
                else:
                    return found
            if node.start < length:
                break
        return None

    def _serve(self, rows: GroupRows, checkpoint: Checkpoint, index: int, length: int) -> tuple[Held, ...] | None:
        first, pages = checkpoint.windows[index]
        if rows.group.retention is Retention.STATE:
            good = checkpoint.position == length and rows.pool.slot[pages[0]] >= 0
            return ((0, pages),) if good else None
        low, high, sinks = needed_blocks(rows, length)
        if low < first or first + len(pages) < high:
            return None
        pool = rows.pool
        held = pages[low - first : high - first]
        if pool.doomed and (pool.slot[held] < 0).any():
            return None
        if not sinks:
            return ((low, held),) if high > low else ()
        kept = checkpoint.sinks[index]
        if kept is None or len(kept) < sinks or (pool.doomed and (pool.slot[kept[:sinks]] < 0).any()):
            return None
        return ((0, kept[:sinks]), (low, held)) if high > low else ((0, kept[:sinks]),)

    def _reach(self, path: Path, raw: int) -> int:
        """How long a prefix can be at most whose last block, or state, some checkpoint keeps in each special group."""
        for index, rows in enumerate(self._tree.special):
            block, window, sinks, _, _ = rows.group.rule
            if window == 1:
                continue  # At a block border nothing is needed.
            is_state = rows.group.retention is Retention.STATE
            reach = 0
            for node, same in reversed(path):
                for checkpoint in reversed(node.checkpoints or ()):
                    position = checkpoint.position
                    if position <= reach:
                        break
                    first, pages = checkpoint.windows[index]
                    if first * block >= raw and not sinks and not is_state:
                        continue
                    limit = min(raw, position, _agrees_up_to(checkpoint, node, same))
                    if is_state:
                        kept = position if position == limit else 0
                    else:
                        # A last block that the checkpoint shares with us only in part serves no longer prefix.
                        stop = limit if limit == raw else limit - limit % block
                        end = first + len(pages) if first * block < stop else sinks
                        kept = min(end * block, stop)
                    if kept > reach:
                        reach = kept
                if node.start <= reach:
                    break
            if reach < raw:
                raw = reach
        return raw

    def _any_checkpoints(self, path: Path, raw: int) -> tuple[int, list[tuple[Held, ...]]]:
        """Find the longest length whose blocks the checkpoints together keep: all borders, at once."""
        unit = self._tree.unit
        lengths = np.arange(unit, raw + 1, unit, dtype=np.int64)
        if self._partial and raw % unit:
            lengths = np.append(lengths, raw)
        if not len(lengths):
            return 0, []
        possible = np.ones(len(lengths), np.bool_)
        checkpoints = _on_path(path)
        tables: list[Int32Array] = []
        for index, rows in enumerate(self._tree.special):
            if rows.group.retention is Retention.STATE:
                table = np.full(raw + 1, BAD_PAGE, np.int32)
                for checkpoint, limit in checkpoints:
                    page = checkpoint.windows[index][1][0]
                    if checkpoint.position <= min(raw, limit) and rows.pool.slot[page] >= 0:
                        table[checkpoint.position] = page
                possible &= table[lengths] >= 0
            else:
                table = self._presence(rows, index, raw, checkpoints)
                low, high, sinks = needed_block_arrays(rows, lengths)
                missing = np.concatenate([[0], np.cumsum(table < 0)])
                possible &= (missing[high] == missing[low]) & (missing[sinks] == 0)
            tables.append(table)
        if not possible.any():
            return 0, []
        best = int(lengths[np.flatnonzero(possible)[-1]])
        return best, [
            self._from_table(rows, best, table) for rows, table in zip(self._tree.special, tables, strict=True)
        ]

    def _presence(self, rows: GroupRows, index: int, raw: int, checkpoints: list[tuple[Checkpoint, int]]) -> Int32Array:
        """Page of each block of a windowed group that some checkpoint keeps, -1 elsewhere."""
        table = np.full(ceil_div(raw, rows.group.block_tokens), BAD_PAGE, np.int32)
        for checkpoint, limit in checkpoints:
            first, pages = checkpoint.windows[index]
            # A block that the checkpoint filled, or shares with us, only in part serves no longer prefix.
            stop = len(table) if limit >= raw else limit // rows.group.block_tokens
            for start, part in ((first, pages), (0, checkpoint.sinks[index])):
                if part is not None and start < stop:
                    part = part[: stop - start]
                    table[start : start + len(part)] = part
        if rows.pool.doomed:
            table[rows.pool.slot[table] < 0] = BAD_PAGE
        return table

    def _from_table(self, rows: GroupRows, length: int, table: Int32Array) -> tuple[Held, ...]:
        if rows.group.retention is Retention.STATE:
            return ((0, table[length : length + 1].copy()),)
        low, high, sinks = needed_blocks(rows, length)
        runs: list[Held] = [(0, table[:sinks].copy())] if sinks else []
        if high > low:
            runs.append((low, table[low:high].copy()))
        return tuple(runs)


def _agrees_up_to(checkpoint: Checkpoint, node: Node, same: int) -> int:
    """How far a listed checkpoint's text is the looked-up one, of which ``same`` tokens match in ``node``.

    A node's tail is only the text of checkpoints at home in it: others go on in a child.
    """
    if node.row < 0 and checkpoint.home is not node:
        same = min(same, len(node.data) // TOKEN_BYTES)
    return node.start + same


def _on_path(path: Path) -> list[tuple[Checkpoint, int]]:
    """Checkpoints along a path, each with the length up to which its text is the path's."""
    found: dict[int, tuple[Checkpoint, int]] = {}
    for node, same in path:
        for checkpoint in node.checkpoints or ():
            found[id(checkpoint)] = (checkpoint, min(checkpoint.position, _agrees_up_to(checkpoint, node, same)))
    return list(found.values())


def needed_blocks(rows: GroupRows, length: int) -> tuple[int, int, int]:
    """Blocks a query at ``length`` reads below it: ``(low, high)`` in the window, and how many sink blocks."""
    block, window, sinks, _, _ = rows.group.rule
    high = -(-length // block)
    if sinks > high:
        sinks = high
    low = (length + 1 - (window or 1)) // block
    if low < sinks:
        low = sinks
    return low, high if high > low else low, sinks


def kept_blocks(rows: GroupRows, row: int, position: int) -> tuple[Held, Int32Array | None]:
    """Pages a checkpoint at ``position`` of ``row`` keeps in a windowed group: window and sinks, -1 where one is gone.

    It keeps one position more than a query there reads, for exact repeats, where the row still has its block.
    """
    low, high, num_sinks = needed_blocks(rows, position)
    table = rows.pages[row]
    first = max(num_sinks, max(0, position - (rows.group.window or 1)) // rows.block_tokens)
    if first < low and table[first] < 0:
        first = low
    return (first, table[first:high].copy()), table[:num_sinks].copy() if num_sinks else None


def needed_block_arrays(rows: GroupRows, lengths: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """``needed_blocks`` for many lengths at once."""
    group = rows.group
    window = group.window or 1
    high = -(-lengths // group.block_tokens)
    sinks = np.minimum(group.sink_blocks, high)
    low = np.maximum(sinks, np.maximum(0, lengths - window + 1) // group.block_tokens)
    return low, np.maximum(low, high), sinks
