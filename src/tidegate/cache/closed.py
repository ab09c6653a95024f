"""What sequences leave behind that ended together: arrays of the whole batch, from which nodes are made on demand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.base import Int32Array, Int64Array
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, ClosedLeaf, Node
from tidegate.cache.owners import PageOwners

NO_TOKENS = np.empty(0, np.int32)


class Runs(NamedTuple):
    """Consecutive blocks of each of several sequences: first ordinals, and pages, last block first, up to ``ends``."""

    first: Int64Array
    ends: Int64Array
    pages: Int32Array

    def of(self, place: int) -> tuple[int, Int32Array]:
        """Return one sequence's first ordinal and its pages in order."""
        begin = int(self.ends[place - 1]) if place else 0
        return int(self.first[place]), self.pages[begin : self.ends[place]][::-1].copy()


class Texts(NamedTuple):
    """Tokens of leaves up to ``history``: what the sequences were given, up to ``given``, and what came then.

    What they were given lies in arrays that nobody changes, so it need not be copied before somebody looks at it.
    """

    given_tokens: list[Int32Array]
    other_tokens: list[bytes]
    given: Int64Array
    published: Int64Array
    history: Int64Array

    def of(self, place: int, start: int) -> tuple[bytes, bytes]:
        """Return the tokens of one leaf, in whole units and in its tail."""
        text = self.given_tokens[place][start : self.given[place]].tobytes() + self.other_tokens[place]
        cut = (int(self.published[place]) - start) * TOKEN_BYTES
        return text[:cut], text[cut:]

    def forget(self, place: int) -> None:
        """Keep the tokens of one leaf no longer."""
        self.given_tokens[place], self.other_tokens[place] = NO_TOKENS, b""


class ClosedRows:
    """Closed leaves and the checkpoints at their ends. ``checkpoints`` are the latter's indices, -1 for none."""

    __slots__ = ("_leaves", "_num_folded", "_owners", "_texts", "checkpoints", "full", "sinks", "windows")

    def __init__(self, owners: PageOwners, leaves: list[Node], texts: Texts, checkpoints: Int64Array) -> None:
        self._owners = owners
        self._leaves = leaves
        self._num_folded = len(leaves)
        self._texts = texts
        self.checkpoints = checkpoints
        self.full: list[Runs] = []
        self.windows: list[Runs] = []
        self.sinks: list[Runs | None] = []

    def fold(self) -> None:
        """Let the leaves' content be here from now on."""
        for place, leaf in enumerate(self._leaves):
            leaf.row = -2 - place
            leaf.batch = self
            leaf.__class__ = ClosedLeaf

    def unfold(self, leaf: ClosedLeaf) -> None:
        """Make a closed leaf a plain node."""
        self._unfold(leaf)
        if self._num_folded * 4 < len(self._leaves):  # the last few would keep alive the arrays of all
            self.unfold_all()

    def unfold_all(self) -> None:
        """Make all that are left plain nodes."""
        for leaf in self._leaves:
            if isinstance(leaf, ClosedLeaf):
                self._unfold(leaf)

    def _unfold(self, leaf: ClosedLeaf) -> None:
        place = -2 - leaf.row
        plain: Node = leaf
        plain.__class__ = Node
        plain.row, plain.batch = -1, None
        self._fill(plain, place, leaf)
        self._texts.forget(place)
        self._num_folded -= 1
        if self.checkpoints[place] >= 0 and plain.checkpoints:
            self._owners.put(plain.checkpoints[-1])

    def twin(self, leaf: ClosedLeaf) -> Node:
        """Return the plain node that a closed leaf stands for; leaves the leaf as it is."""
        twin = Node(leaf.tree, leaf.parent, leaf.start, -1)
        twin.index, twin.checkpoints = leaf.index, leaf.earlier_checkpoints
        self._fill(twin, -2 - leaf.row, leaf)
        return twin

    def _fill(self, node: Node, place: int, leaf: Node) -> None:
        """Put a leaf's content into a plain node, which has its earlier checkpoints."""
        node.data, node.tail = self._texts.of(place, node.start)
        node.pages = [runs.of(place)[1] for runs in self.full]
        index = int(self.checkpoints[place])
        if index >= 0:
            windows = [runs.of(place) for runs in self.windows]
            sinks = [None if runs is None else runs.of(place)[1] for runs in self.sinks]
            checkpoint = Checkpoint(int(self._texts.history[place]), windows, sinks)
            checkpoint.index, checkpoint.home, checkpoint.nodes = index, leaf, (leaf,)
            node.checkpoints = [*(node.checkpoints or ()), checkpoint]
