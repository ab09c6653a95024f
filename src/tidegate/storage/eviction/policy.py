"""What an eviction policy is asked, and what it may know of pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidegate.base import BoolArray, Int32Array, Int64Array

Validity = Callable[[Int32Array, Int32Array], BoolArray]
"""``(pages, stamps) -> bool[n]``: is this entry still the page's latest, and the page evictable?"""


class PageFacts(Protocol):
    """Columns by page id, for reading only and to be asked for anew each time: they are replaced when they grow."""

    @property
    def ordinal(self) -> Int32Array:
        """Place of each page's block in its sequence, int32; -1 where nobody caches the page."""
        ...

    @property
    def refs(self) -> Int32Array:
        """How many nodes and checkpoints keep each page, int32."""
        ...

    @property
    def num_slots(self) -> int:
        """Slots of the pool group."""
        ...


class EvictionPolicy(Protocol):
    """Orders the evictable pages of one pool group: lowest retention first, and by its own rule among equals.

    A page is pushed each time its last user lets go of it, so the second push of a page is its second use. Whatever
    has to go with a page (the rest of its branch) goes whether it was chosen or not.
    """

    notes_new: bool
    """Whether ``begin`` is to be called: a policy that remembers pages must know when an id is another page's."""

    def begin(self, pages: Int32Array) -> None:
        """Note that these ids name new pages."""
        ...

    def push(self, pages: Int32Array | Int64Array, stamp: int, retention: int) -> None:
        """Note pages that became evictable, first to go first."""
        ...

    def pop(self, count: int, valid: Validity) -> Int32Array:
        """Choose up to ``count`` pages, in order of going."""
        ...

    def restore(self, pages: Int32Array, stamps: Int32Array, retentions: Int32Array) -> None:
        """Take popped pages back, to be the first to go again."""
        ...

    def restamp(self, stamp: int) -> None:
        """Drop entries that are not valid and give all others this stamp."""
        ...

    def num_queued(self, evictable: BoolArray) -> int:
        """Return how many of the pages marked evictable have a valid entry, for audits."""
        ...


PolicyMaker = Callable[[Validity, PageFacts], EvictionPolicy]
"""``make(valid, pages)`` of a module in ``policies``: the order of one pool group."""
