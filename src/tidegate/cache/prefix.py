"""How much of a prompt can be reused: one length for the whole request, agreed by all groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.base import BAD_PAGE, Int32Array, Retention
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, Held, Node, ReuseScope
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.ranges import ceil_div
from tidegate.cache.tables import GroupRows

Path = list[tuple[Node, int]]


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """What the cache holds of a prompt.

    ``reused`` tokens can be taken over; ``raw`` tokens are the longest cached run equal to the prompt, at most all but
    its last token. ``held[g]`` are group ``g``'s pages to take, as runs of blocks.
    """

    reused: int = 0
    raw: int = 0
    held: tuple[tuple[Held, ...], ...] = ()
    path: Path = field(default_factory=list, repr=False)
    unit: int = 1
    reason: str = "nothing of it is cached in its scope"

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

    def match(self, scope: ReuseScope, tokens: Int32Array) -> PrefixMatch:
        """Return the longest reusable prefix of ``tokens``, at least one token short of all of it."""
        scope_tree = self._tree.find(scope)
        limit = len(tokens) - 1
        if scope_tree is None or limit < 1:
            return NO_MATCH
        path, raw = self._tree.reader.walk(scope_tree, tokens)
        full = [self._gather(path, raw, i) for i in range(len(self._tree.full))]
        raw = min(self._without_doomed(full, raw), limit)
        if raw <= 0:
            return NO_MATCH
        reused, special, reason = self._agree(path, raw)
        if not reused:
            return PrefixMatch(0, raw, (), path, self._tree.unit, reason)
        return PrefixMatch(reused, raw, self._held(full, special, reused), path, self._tree.unit, reason)

    def _gather(self, path: Path, raw: int, full_index: int) -> Int32Array:
        """Page ids of a full group along the path, for blocks that hold the first ``raw`` tokens."""
        tree = self._tree
        block = tree.full[full_index].group.block_tokens
        parts = [tree.reader.pages_of(node, full_index)[: ceil_div(same, block)] for node, same in path]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _without_doomed(self, full: list[Int32Array], raw: int) -> int:
        for rows, pages in zip(self._tree.full, full, strict=True):
            if rows.pool.doomed:
                missing = np.flatnonzero(rows.pool.slot[pages] < 0)
                if len(missing):
                    raw = min(raw, int(missing[0]) * rows.group.block_tokens)
        return raw

    def _agree(self, path: Path, raw: int) -> tuple[int, list[tuple[Held, ...]], str]:
        """Return the reused length, the special groups' pages for it, and what stood against more."""
        unit = self._tree.unit
        border = raw // unit * unit
        candidates = [raw] if self._partial or raw == border else []
        if border and border != raw:
            candidates.append(border)
        granular = f"less than one match unit of {unit} tokens is left, and partial reuse is off"
        if not self._tree.special:
            return (candidates[0], [], granular) if candidates else (0, [], granular)
        for candidate in candidates:
            found = self._one_checkpoint(path, candidate)
            if found is not None:
                return candidate, found, granular if candidate == border else "its last block is shared"
        reason = "a windowed or state group keeps no checkpoint there"
        best, found = self._any_checkpoints(path, raw)
        return best, found, reason

    def _one_checkpoint(self, path: Path, length: int) -> list[tuple[Held, ...]] | None:
        """Pages for ``length`` from a single checkpoint, the usual case."""
        for node, same in reversed(path):
            for checkpoint in reversed(node.checkpoints or ()):
                if checkpoint.position < length:
                    break
                if _agrees_up_to(checkpoint, node, same) < length:
                    continue
                found = [self._serve(rows, checkpoint, i, length) for i, rows in enumerate(self._tree.special)]
                if None not in found:
                    return [part for part in found if part is not None]
            if node.start < length:
                break
        return None

    def _serve(self, rows: GroupRows, checkpoint: Checkpoint, index: int, length: int) -> tuple[Held, ...] | None:
        first, pages = checkpoint.windows[index]
        slot = rows.pool.slot
        if rows.group.retention is Retention.STATE:
            good = checkpoint.position == length and slot[pages[0]] >= 0
            return ((0, pages),) if good else None
        low, high, sinks = needed_blocks(rows, length)
        held = pages[low - first : high - first]
        if low < first or len(held) < high - low or (rows.pool.doomed and (slot[held] < 0).any()):
            return None
        runs: list[Held] = [(low, held)] if high > low else []
        if sinks:
            kept = checkpoint.sinks[index]
            if kept is None or len(kept) < sinks or (rows.pool.doomed and (slot[kept[:sinks]] < 0).any()):
                return None
            runs.insert(0, (0, kept[:sinks]))
        return tuple(runs)

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

    def _held(
        self, full: list[Int32Array], special: list[tuple[Held, ...]], reused: int
    ) -> tuple[tuple[Held, ...], ...]:
        full_parts = iter(full)
        special_parts = iter(special)
        held: list[tuple[Held, ...]] = []
        for rows in self._tree.rows:
            if rows.group.retention is Retention.FULL:
                held.append(((0, next(full_parts)[: ceil_div(reused, rows.group.block_tokens)]),))
            else:
                held.append(next(special_parts))
        return tuple(held)


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
    group = rows.group
    window = group.window or 1
    high = ceil_div(length, group.block_tokens)
    sinks = min(group.sink_blocks, high)
    low = max(sinks, max(0, length - window + 1) // group.block_tokens)
    return low, max(low, high), sinks


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


def needed_block_arrays(
    rows: GroupRows, lengths: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> tuple[
    np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    np.ndarray[tuple[int, ...], np.dtype[np.int64]],
]:
    """``needed_blocks`` for many lengths at once."""
    group = rows.group
    window = group.window or 1
    high = -(-lengths // group.block_tokens)
    sinks = np.minimum(group.sink_blocks, high)
    low = np.maximum(sinks, np.maximum(0, lengths - window + 1) // group.block_tokens)
    return low, np.maximum(low, high), sinks
