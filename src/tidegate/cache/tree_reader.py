"""Looking things up in the prefix tree; changes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from tidegate.base import Int32Array
from tidegate.cache.nodes import TOKEN_BYTES, Node, ScopeTree
from tidegate.cache.sequences import SequenceTable
from tidegate.cache.tables import GroupRows
from tidegate.cache.token_runs import INT32, common_tokens

Path = list[tuple[Node, int]]
"""Nodes from the root on, with the tokens matched in each."""


class TreeReader:
    """Reads nodes, and open leaves through the arrays of their sequences."""

    def __init__(self, full: list[GroupRows], sequences: SequenceTable, unit: int) -> None:
        self._full = full
        self._sequences = sequences
        self._unit_bytes = unit * TOKEN_BYTES

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
        rows = self._full[full_index]
        block = rows.group.block_tokens
        stop = int(self._sequences.published[node.row]) // block
        return rows.pages[node.row, node.start // block : stop].copy()

    def gather(self, path: Path, full_index: int) -> Int32Array:
        """Return a full group's page ids for the blocks that hold a path's matched tokens; not to be written."""
        block = self._full[full_index].block_tokens
        parts: list[Int32Array] = []
        for node, same in path:
            pages = node.pages[full_index] if node.row < 0 else self.pages_of(node, full_index)
            parts.append(pages if len(pages) * block <= same else pages[: -(-same // block)])
        if len(parts) == 1:
            only = parts[0][:]
            only.setflags(write=False)
            return only
        return np.frombuffer(b"".join(parts), INT32)  # type: ignore[arg-type]  # arrays are buffers; half a concatenate

    def walk(self, tree: ScopeTree, tokens: Int32Array) -> tuple[Path, int]:
        """Follow ``tokens`` as far as they go: nodes with the tokens matched in each, and their sum."""
        node, position, unit_bytes = tree.root, 0, self._unit_bytes
        path: Path = []
        # Positions are in bytes here. ``startswith`` compares a node with the prompt where both lie: nothing is copied.
        asked = np.ascontiguousarray(tokens).data.cast("B")
        num_bytes = len(asked)
        while children := node.children:
            # An only child is compared at once; an open leaf, whose content is a copy, only if its first unit is asked.
            child = next(iter(children.values())) if len(children) == 1 else None
            if child is None or child.row >= 0:
                child = children.get(asked[position : position + unit_bytes].tobytes())
                if child is None:
                    break
            content = child.data if child.row < 0 else self.content(child)
            size = len(content)
            end = position + size
            run = asked[position:end]
            if size and end <= num_bytes and content.startswith(run):
                path.append((child, size // TOKEN_BYTES))
                node, position = child, end
                continue
            same = common_tokens(content, run)
            if not size or (node.tail and same * TOKEN_BYTES < unit_bytes):
                break
            if same:
                path.append((child, same))
            return path, position // TOKEN_BYTES + same
        if position == num_bytes:
            return path, len(tokens)
        best, same = self._nearest(node, asked[position : position + unit_bytes].tobytes())
        if best is node:
            path[-1] = (node, path[-1][1] + same)
        elif best is not None:
            path.append((best, same))
        return path, position // TOKEN_BYTES + same

    def _nearest(self, node: Node, key: bytes) -> tuple[Node | None, int]:
        """Return who shares most tokens of a partial unit: a child, or the node by its own tail."""
        best: Node | None = None
        same = 0
        if node.tail:
            same = common_tokens(node.tail, key)
            best = node if same else None
        if node.keys and node.children is not None:
            at = bisect_left(node.keys, key)
            for neighbour in node.keys[at - 1 if at else 0 : at + 1]:
                shared = common_tokens(neighbour, key)
                if shared > same:
                    best, same = node.children[neighbour], shared
        return best, same

    def holder_of_tail(self, node: Node, tail: bytes) -> Node | None:
        """Return who caches all of a partial unit after ``node`` already."""
        holder, same = self._nearest(node, tail)
        return holder if same * TOKEN_BYTES == len(tail) else None


def subtree(node: Node) -> Iterator[Node]:
    """Yield a node's descendants, parents first."""
    stack = list(node.children.values()) if node.children else []
    while stack:
        child = stack.pop()
        yield child
        if child.children:
            stack.extend(child.children.values())
