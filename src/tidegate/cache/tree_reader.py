"""Looking things up in the prefix tree; changes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from tidegate.base import Int32Array
from tidegate.cache.nodes import TOKEN_BYTES, Node, ScopeTree, common_tokens
from tidegate.cache.sequences import SequenceTable
from tidegate.cache.tables import GroupRows

_SHORT = 1 << 14
"""Tokens up to which copying and comparing bytes beats array operations."""


def _array(data: bytes) -> Int32Array:
    return np.frombuffer(data, np.int32)


class TreeReader:
    """Reads nodes, and open leaves through the arrays of their sequences."""

    def __init__(self, full: list[GroupRows], sequences: SequenceTable, unit: int) -> None:
        self._full = full
        self._sequences = sequences
        self._unit = unit

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
        return rows.pages[node.row, node.start // block : stop]

    def walk(self, tree: ScopeTree, tokens: Int32Array) -> tuple[list[tuple[Node, int]], int]:
        """Follow ``tokens`` as far as they go: nodes with the tokens matched in each, and their sum.

        Short runs are compared as bytes, which has the least overhead; long ones as arrays, which copies nothing.
        """
        node, position, unit = tree.root, 0, self._unit
        path: list[tuple[Node, int]] = []
        data = tokens.tobytes() if len(tokens) <= _SHORT else None
        while node.children is not None:
            if data is None:
                child = node.children.get(tokens[position : position + unit].tobytes())
            else:
                child = node.children.get(data[position * TOKEN_BYTES : (position + unit) * TOKEN_BYTES])
            if child is None:
                break
            content = child.data if child.row < 0 else self.content(child)
            size = len(content) // TOKEN_BYTES
            if not size:
                break
            if data is not None:
                equal = data[position * TOKEN_BYTES : (position + size) * TOKEN_BYTES] == content
            else:
                equal = size <= _SHORT and tokens[position : position + size].tobytes() == content
            if not equal:
                same = common_tokens(tokens[position : position + size], np.frombuffer(content, np.int32))
                if same < size:
                    if same:
                        path.append((child, same))
                    return path, position + same
            path.append((child, size))
            position += size
            node = child
        best, same = self._nearest(node, tokens[position : position + unit].tobytes())
        if best is node:
            path[-1] = (node, path[-1][1] + same)
        elif best is not None:
            path.append((best, same))
        return path, position + same

    def _nearest(self, node: Node, key: bytes) -> tuple[Node | None, int]:
        """Return who shares most tokens of a partial unit: a child, or the node by its own tail."""
        best: Node | None = None
        same = 0
        if not key:
            return best, same
        if node.tail:
            same = common_tokens(_array(key), _array(node.tail))
            best = node if same else None
        if node.keys and node.children is not None:
            at = bisect_left(node.keys, key)
            for neighbour in node.keys[max(0, at - 1) : at + 1]:
                shared = common_tokens(_array(key), _array(neighbour))
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
