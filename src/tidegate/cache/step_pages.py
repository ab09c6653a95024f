"""What an engine needs of the cache for one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.base import GroupTables, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class PageCopies:
    """Whole-slot copies inside one pool group: ``sources[i]`` to ``targets[i]``."""

    pool_group: int
    sources: Int32Array
    targets: Int32Array


class StepPages(NamedTuple):
    """What an engine needs of the cache for one step: ``rows[i]`` computes positions ``starts[i]:ends[i]``.

    ``copies`` are to be done before the forward pass, ``snapshots`` after it and before the next step's.
    """

    rows: Int64Array
    starts: Int64Array
    ends: Int64Array
    groups: tuple[GroupTables, ...]
    copies: tuple[PageCopies, ...]
    snapshots: tuple[PageCopies, ...]
