"""Several reservations of one cache as one step, and reservations in several caches, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from tidegate.base import ConfigError, Int64Array
from tidegate.cache.candidate import Candidate
from tidegate.cache.reservation import Reservation
from tidegate.cache.step_pages import PageCopies, StepPages

if TYPE_CHECKING:
    from tidegate.cache.manager import KVCacheManager
    from tidegate.cache.quote import Quote


class JointReservation:
    """Reservations that one step dispatches, keeps or rolls back together, in the order given.

    They were made one after the other in the same cache, and none of them is dispatched yet.
    """

    def __init__(self, parts: Sequence[Reservation]) -> None:
        if not parts:
            raise ConfigError("parts=[] must hold at least one reservation", field="parts")
        self.parts = tuple(parts)

    @property
    def rows(self) -> Int64Array:
        """Rows of all parts, one after the other."""
        return np.concatenate([part.rows for part in self.parts])

    @property
    def starts(self) -> Int64Array:
        """Where each row's step begins."""
        return np.concatenate([part.starts for part in self.parts])

    @property
    def ends(self) -> Int64Array:
        """Where each row's step ends."""
        return np.concatenate([part.ends for part in self.parts])

    @property
    def suspended(self) -> list[Candidate]:
        """Victims, as candidates, once dispatched."""
        return [candidate for part in self.parts for candidate in part.suspended]

    @property
    def is_open(self) -> bool:
        """Whether any part can still be kept or rolled back."""
        return any(part.is_open for part in self.parts)

    def dispatch(self) -> StepPages:
        """Make all parts final for the cache and return the pages of the whole step."""
        for part in self.parts:
            part.commit()
        rows, starts, ends = self.rows, self.starts, self.ends
        copies: list[PageCopies] = []
        snapshots: list[PageCopies] = []
        for part in self.parts:
            copies += part.copies
            snapshots += part.snapshots
        tables = self.parts[0].tables(rows, starts, ends)
        return StepPages(rows, starts, ends, tables, tuple(copies), tuple(snapshots))

    def keep(self) -> None:
        """Keep all parts."""
        for part in self.parts:
            part.keep()

    def rollback(self) -> None:
        """Give everything back, the last part first."""
        for part in reversed(self.parts):
            if part.is_open:
                part.rollback()


def reserve_all(pairs: Sequence[tuple[KVCacheManager, Quote]]) -> tuple[Reservation, ...]:
    """Reserve each quote in its cache: all of them, or none when one raises."""
    with ExitStack() as undo:
        reservations = []
        for manager, quote in pairs:
            reservation = manager.reserve(quote)
            undo.callback(reservation.rollback)
            reservations.append(reservation)
        undo.pop_all()
    return tuple(reservations)
