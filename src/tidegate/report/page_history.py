"""Pages in use over time, one series for each layer group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import Int64Array

_LIMIT = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PageHistory:
    """``pages`` int64 ``[samples, series]`` at ``times_s``, seconds since the first sample; one name per series."""

    names: tuple[str, ...]
    times_s: npt.NDArray[np.float64]
    pages: Int64Array

    @property
    def peaks(self) -> tuple[int, ...]:
        """The largest sample of each series."""
        return tuple(int(n) for n in self.pages.max(axis=0)) if len(self.pages) else (0,) * len(self.names)


class PageRecorder:
    """Collects samples in bounded memory: of neighbours that must be merged, each series keeps the larger sample."""

    def __init__(self, names: Sequence[str], limit: int = _LIMIT) -> None:
        self._names = tuple(names)
        self._limit = max(2, limit)
        self._times: list[float] = []
        self._pages: list[tuple[int, ...]] = []

    def record(self, time_s: float, pages: Sequence[int]) -> None:
        """Add a sample; times must not go back."""
        self._times.append(time_s)
        self._pages.append(tuple(pages))
        if len(self._times) > self._limit:
            self._halve()

    def history(self) -> PageHistory:
        """Return what was recorded, time counted from the first sample."""
        times = np.array(self._times, np.float64)
        pages = np.array(self._pages, np.int64).reshape(len(self._pages), len(self._names))
        return PageHistory(self._names, times - times[0] if len(times) else times, pages)

    def _halve(self) -> None:
        pairs = range(0, len(self._times), 2)
        self._pages = [tuple(max(column) for column in zip(*self._pages[i : i + 2], strict=True)) for i in pairs]
        self._times = [self._times[i] for i in pairs]
