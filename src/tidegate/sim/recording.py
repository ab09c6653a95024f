"""What a run leaves behind, as columns that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.base import InternalError
from tidegate.engine.simulated import StepTime
from tidegate.runtime.group import GroupStep, Rank

Array = npt.NDArray[np.generic]


class Column:
    """Rows of one dtype and shape, appended one by one."""

    def __init__(self, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> None:
        self._rows = np.zeros((256, *shape), dtype=dtype)
        self._count = 0

    def append(self, row: npt.ArrayLike) -> None:
        """Add a row."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._count] = row
        self._count += 1

    def rows(self) -> Array:
        """Return all rows."""
        return self._rows[: self._count].copy()


class StepHistory:
    """Every step that computed something: when it ended, how long it took and what of that was shared, and each rank's
    tokens; how many prefills were held."""

    def __init__(self, num_ranks: int) -> None:
        self.ended_s = Column(np.float64)
        self.step_s = Column(np.float64)
        self.shared_s = Column(np.float64)
        self.tokens = Column(np.int32, (num_ranks,))
        self.held = Column(np.int32)

    def add(self, step: GroupStep, time: StepTime, now: float) -> None:
        """Note a step."""
        self.ended_s.append(now)
        self.step_s.append(time.total_s)
        self.shared_s.append(time.shared_s + time.host_s)
        self.tokens.append(step.tokens)
        self.held.append(sum(step.held))


class PageHistory:
    """Pages of all ranks over time, by layer group and by pool; at most ``2 * size`` samples, evenly spread over steps.

    When there are more, every second one goes and half as many are taken from then on.
    """

    def __init__(self, ranks: Sequence[Rank], size: int = 1000) -> None:
        self._ranks = ranks
        self._size = size
        self._stride = 1
        self._num_seen = 0
        self._times: list[float] = []
        self._owned: list[list[list[int]]] = []
        self._in_use: list[list[list[int]]] = []

    def offer(self, now: float) -> None:
        """Take a sample if it is time for one."""
        self._num_seen += 1
        if (self._num_seen - 1) % self._stride:
            return
        statistics = [rank.manager.statistics() for rank in self._ranks]
        self._times.append(now)
        self._owned.append([[group.owned for group in s.groups] for s in statistics])
        self._in_use.append([[pool.in_use for pool in s.pools] for s in statistics])
        if len(self._times) == 2 * self._size:
            for samples in (self._times, self._owned, self._in_use):
                del samples[1::2]
            self._stride *= 2

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return sample times ``[m]``, pages that sequences own ``[m, ranks, groups]`` and pages in use ``[m, ranks,
        pool groups]``."""
        if not self._times:
            raise InternalError("no sample of pages was taken")
        return np.array(self._times), np.array(self._owned), np.array(self._in_use)
