"""One sequence at a time, for embedders: the one-element form of the batch calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.base import Closed, InternalError, OutOfPages, RequestTooLong, StateError, Suspended
from tidegate.cache.candidate import Candidate, checked_tokens
from tidegate.cache.core import CacheCore
from tidegate.cache.door import position
from tidegate.cache.moves import Move
from tidegate.cache.ranges import OpenStep
from tidegate.cache.sequences import Cursors, Mode

if TYPE_CHECKING:
    from tidegate.cache.manager import KVCacheManager


class Sequence:
    """A handle with an explicit life: active (``row >= 0``), suspended, or closed. Also a context manager.

    It starts with what it matched: ``history == capacity ==`` the reused length, on pages it holds.
    """

    def __init__(self, manager: KVCacheManager, core: CacheCore, candidate: Candidate) -> None:
        self._manager = manager
        self._core = core
        self._candidate: Candidate | None = candidate
        self._row = -1
        self._generation = -1
        self._closed = False
        if not core.sequences.free_rows:
            raise OutOfPages("no free row for another active sequence", needed=1, free=0)
        self._activate()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def row(self) -> int:
        """Its row; raises ``Closed`` or ``Suspended``."""
        if self._closed or (self._row >= 0 and not self._owns_row()):
            raise Closed("the sequence is closed")
        if self._row < 0:
            raise Suspended("the sequence is suspended: resume it first")
        return self._row

    @property
    def history(self) -> int:
        """Positions below this hold valid keys and values."""
        return 0 if self._row < 0 else int(self._core.sequences.history[self.row])

    @property
    def capacity(self) -> int:
        """End of the planned step."""
        return 0 if self._row < 0 else int(self._core.sequences.capacity[self.row])

    def _owns_row(self) -> bool:
        """Whether its row is still this sequence's: others may close it by its number."""
        sequences = self._core.sequences
        return bool(sequences.mode[self._row] != Mode.FREE and sequences.generation[self._row] == self._generation)

    def resize(
        self,
        capacity: int | None = None,
        history_length: int | None = None,
        *,
        allow_swa_scratch_reuse: bool = True,
    ) -> bool:
        """Settle at ``history_length``, then move the end of the planned step to ``capacity``, as one change.

        False: not enough pages, nothing changed. Misuse raises ``StateError``.
        """
        row, sequences = self.row, self._core.sequences
        self._core.check_unreserved(np.array([row]))
        if sequences.num_open[row] > 1:
            raise StateError("resize is for sequences without overlapped steps")
        old = sequences.cursors(row)
        target = old.capacity if capacity is None else position(capacity, "capacity")
        history = old.history if history_length is None else position(history_length, "history_length")
        if not old.history <= history <= old.capacity:
            raise StateError(f"history_length={history} must be in [{old.history}, {old.capacity}]")
        if target < history:
            raise StateError(f"capacity={target} must be at least the history {history}")
        if target > sequences.max_seq_len:
            raise RequestTooLong(f"capacity={target} is above max_seq_len={sequences.max_seq_len}")
        if old.steps and sequences.mode[row] != Mode.PLANNED and history == old.history and target != old.capacity:
            raise StateError(
                f"capacity={target}: the step to {old.capacity} is dispatched; settle it with history_length"
            )
        if history == old.history:
            return self._retarget(row, (history, old.settled), target, allow_swa_scratch_reuse)
        self._core.settler.rules.check_settle(row, history)
        return self._settle_and_retarget(row, history, target, allow_swa_scratch_reuse)

    def resume(self) -> bool:
        """Become active at the longest reusable prefix; False without a free row or above the resume gate."""
        if self._closed:
            raise Closed("the sequence is closed")
        if self._row >= 0:
            return self.row >= 0
        core = self._core
        if not core.sequences.free_rows or (
            core.sequences.mode.any() and core.utilization() > core.config.max_util_for_resume
        ):
            return False
        return self._activate()

    def _activate(self) -> bool:
        """Become active whatever the utilization: holding a match needs no fresh page."""
        core, candidate = self._core, self._candidate
        if candidate is None:
            raise Closed("the sequence is closed")
        reused = self._manager.lookup(candidate)
        quote = self._manager.quote()
        if not quote.admit(candidate, reused):
            return False
        with self._manager.reserve(quote) as reservation:
            reservation.keep()
        self._row = int(reservation.rows[0])
        self._generation = int(core.sequences.generation[self._row])
        self._candidate = None
        return True

    def _retarget(self, row: int, settled: tuple[int, int], target: int, scratch: bool) -> bool:
        return self._reserve(self._priced(row, settled, target, scratch), row)

    def _priced(self, row: int, settled: tuple[int, int], target: int, scratch: bool) -> Move:
        steps = [OpenStep(settled[0], target, scratch)] if target > settled[0] else []
        return self._core.mover.complete(Move(row, Cursors(*settled, steps)))

    def _settle_and_retarget(self, row: int, history: int, target: int, scratch: bool) -> bool:
        """Price the whole change first; settling itself never needs pages, so it can then go first."""
        core = self._core
        settled = (history, core.settler.rules.settled_at(row, history))
        if not self._manager.quote().accept_move(self._priced(row, settled, target, scratch), row):
            return False
        core.settler.advance(np.array([row]), np.array([history]), np.full(1, -1, np.int32))
        core.touch()
        if not self._retarget(row, settled, target, scratch):
            raise InternalError(f"resizing row {row} to {target} lost pages that were free")
        return True

    def _reserve(self, move: Move, row: int) -> bool:
        quote = self._manager.quote()
        if not quote.accept_move(move, row):
            return False
        with self._manager.reserve(quote) as reservation:
            reservation.keep()
        self._manager.copy_pages(reservation.copies)
        return True

    def append(self, tokens: npt.ArrayLike) -> None:
        """Make tokens known, so that their blocks can be published when they settle."""
        array = checked_tokens(tokens, self._core.config.max_seq_len).reshape(1, -1)
        self._core.sequences.append_tokens(np.array([self.row]), array)

    def rewind(self, history: int) -> None:
        """Take back positions from ``history`` on, and forget the tokens there."""
        self._manager.rewind(np.array([self.row]), np.array([history]))

    def suspend(self) -> None:
        """Give everything back; ``resume`` or ``resize`` starts again from the longest reusable prefix."""
        if self._row < 0:
            return
        self._candidate = self._manager.suspend(np.array([self.row]))[0]
        self._row = -1

    def close(self) -> None:
        """End it; idempotent."""
        if self._closed:
            return
        if self._row >= 0 and self._owns_row():
            row = self.row
            sequences = self._core.sequences
            if sequences.num_open[row]:
                self._retarget(row, (int(sequences.history[row]), int(sequences.settled[row])), self.history, True)
            self._manager.close(np.array([row]))
        self._row = -1
        self._candidate = None
        self._closed = True
