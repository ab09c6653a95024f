"""Where a request stands, and the one table of legal moves."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from tidegate.base import InternalError


class Phase(IntEnum):
    """A request's phase; small integers, because running sequences keep it in an array."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    SUSPENDED = 3
    FINISHED = 4


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CAPACITY = "capacity"
    ABORTED = "aborted"
    ERROR = "error"


# A step in which nothing is computed for a sequence leaves its phase alone: staying put is legal where work goes on.
_NEXT: dict[Phase, tuple[Phase, ...]] = {
    Phase.WAITING: (Phase.PREFILL, Phase.FINISHED),
    Phase.PREFILL: (Phase.PREFILL, Phase.DECODE, Phase.SUSPENDED, Phase.FINISHED),
    Phase.DECODE: (Phase.DECODE, Phase.SUSPENDED, Phase.FINISHED),
    Phase.SUSPENDED: (Phase.PREFILL, Phase.FINISHED),
    Phase.FINISHED: (),
}

_IS_LEGAL = np.zeros((len(Phase), len(Phase)), dtype=np.bool_)
for _old, _news in _NEXT.items():
    _IS_LEGAL[_old, list(_news)] = True
_IS_LEGAL.flags.writeable = False

PhaseArray = npt.NDArray[np.int8]


def check_move(old: Phase, new: Phase) -> None:
    """Raise ``InternalError`` unless a request may go from ``old`` to ``new``."""
    if not _IS_LEGAL[old, new]:
        raise InternalError(f"a request cannot go from {old.name} to {new.name}", old=old.name, new=new.name)


def check_moves(old: PhaseArray, new: Phase) -> None:
    """Raise ``InternalError`` unless every one of ``old`` may become ``new``."""
    legal = _IS_LEGAL[:, new][old]
    if not legal.all():
        bad = Phase(int(old[int(np.argmin(legal))]))
        raise InternalError(f"a request cannot go from {bad.name} to {new.name}", old=bad.name, new=new.name)
