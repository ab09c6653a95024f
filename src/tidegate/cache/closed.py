"""What sequences leave behind that ended together: arrays of the whole batch, from which nodes are made on demand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.base import Int32Array, Int64Array
from tidegate.cache.nodes import TOKEN_BYTES, Checkpoint, ClosedLeaf, Node, list_checkpoint
from tidegate.cache.owners import PageOwners


class Runs(NamedTuple):
    """Consecutive blocks of each of several sequences: first ordinals, and pages that end at ``ends``."""

    first: Int64Array
    ends: Int64Array
    pages: Int32Array

    def of(self, place: int) -> tuple[int, Int32Array]:
        """Return one sequence's first ordinal and pages."""
        begin = int(self.ends[place - 1]) if place else 0
        return int(self.first[place]), self.pages[begin : self.ends[place]].copy()


class Texts(NamedTuple):
    """Tokens of leaves: whole units up to ``published``, then the tail up to ``history``."""

    data: bytes
    begins: Int64Array
    published: Int64Array
    history: Int64Array


class ClosedRows:
    """Closed leaves and the checkpoints at their ends. ``checkpoints`` are the latter's indices, -1 for none."""

    __slots__ = ("_checkpoints", "_full", "_leaves", "_num_folded", "_owners", "_sinks", "_texts", "_windows")

    def __init__(
        self, owners: PageOwners, leaves: list[Node], texts: Texts, full: list[Runs], checkpoints: Int64Array
    ) -> None:
        self._owners = owners
        self._leaves = leaves
        self._num_folded = len(leaves)
        self._texts = texts
        self._full = full
        self._checkpoints = checkpoints
        self._windows: list[Runs] = []
        self._sinks: list[Runs | None] = []

    def add_windows(self, windows: Runs, sinks: Runs | None) -> None:
        """Note what the checkpoints keep in the next windowed group."""
        self._windows.append(windows)
        self._sinks.append(sinks)

    def fold(self) -> None:
        """Let the leaves' content be here from now on."""
        for place, leaf in enumerate(self._leaves):
            leaf.row = -2 - place
            leaf.batch = self
            leaf.__class__ = ClosedLeaf

    def unfold(self, leaf: Node) -> None:
        """Make a closed leaf a plain node."""
        self._unfold(leaf)
        if self._num_folded * 4 < len(self._leaves):  # the last few would keep alive the arrays of all
            self.unfold_all()

    def unfold_all(self) -> None:
        """Make all that are left plain nodes."""
        for leaf in self._leaves:
            if leaf.batch is self:
                self._unfold(leaf)

    def _unfold(self, leaf: Node) -> None:
        place = -2 - leaf.row
        leaf.__class__ = Node
        leaf.row, leaf.batch = -1, None
        self._num_folded -= 1
        data, begins, published, history = self._texts
        begin = int(begins[place])
        cut = begin + (int(published[place]) - leaf.start) * TOKEN_BYTES
        end = begin + (int(history[place]) - leaf.start) * TOKEN_BYTES
        leaf.data, leaf.tail = data[begin:cut], data[cut:end]
        leaf.pages = [runs.of(place)[1] for runs in self._full]
        index = int(self._checkpoints[place])
        if index >= 0:
            windows = [runs.of(place) for runs in self._windows]
            sinks = [None if runs is None else runs.of(place)[1] for runs in self._sinks]
            checkpoint = Checkpoint(int(history[place]), windows, sinks)
            checkpoint.index = index
            checkpoint.home = leaf
            self._owners.put(checkpoint)
            list_checkpoint(leaf, checkpoint)
