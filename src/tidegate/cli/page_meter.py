"""Counts the pages of every step, standing between the runtime and its engine.

Only here are both known: what a step computes (the engine is told) and how the cache's layer groups keep it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import Clock, Int64Array, Retention
from tidegate.bench import GroupUse, TargetStatistics
from tidegate.cache import KVCacheManager, LayerGroup
from tidegate.cli.wrapped_engine import WrappedEngine
from tidegate.engine import Engine, StepInput
from tidegate.report import PageRecorder


class MeteredEngine(WrappedEngine):
    """Counts before each step."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        super().__init__(engine)
        self._clock = clock
        self._meter: PageMeter | None = None

    def forward(self, step: StepInput) -> npt.ArrayLike:
        """Count, then compute."""
        if self._meter:
            self._meter.count(step, self._clock.now())
        return super().forward(step)

    def watch(self, manager: KVCacheManager) -> PageMeter:
        """Count this manager's pages from now on."""
        self._meter = PageMeter(manager)
        return self._meter


class PageMeter:
    """Pages in use at each step, per layer group, and what they would be without scratch.

    A page that several sequences share counts once. Without scratch every scratch block would own a page: that, not
    another run, is where the second number comes from.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._recorder = PageRecorder([group_name(group) for group in manager.groups])
        self._peaks = [0] * len(manager.groups)
        self._plain_peaks = [0] * len(manager.groups)
        self._num_steps = 0

    def count(self, step: StepInput, now_s: float) -> None:
        """Count at a step that has been dispatched and not settled."""
        active = np.flatnonzero(self._manager.capacity)
        starts = step.positions[step.cu_seqlens[:-1]]
        ends = starts + np.diff(step.cu_seqlens)
        pages = []
        for index, (group, tables) in enumerate(zip(self._manager.groups, step.groups, strict=True)):
            owned = len(np.unique(tables.slots[active])) - bool((tables.slots[active] < 0).any())
            blocks, slots = scratch_use(group, starts, ends)
            pages.append(owned + slots)
            self._peaks[index] = max(self._peaks[index], owned + slots)
            self._plain_peaks[index] = max(self._plain_peaks[index], owned + blocks)
        self._recorder.record(now_s, pages)
        self._num_steps += 1

    def statistics(self, num_suspensions: int) -> TargetStatistics:
        """Return what was counted."""
        groups = tuple(
            GroupUse(name=group_name(group), num_layers=len(group.layer_ids), peak_pages=peak, plain_peak=plain)
            for group, peak, plain in zip(self._manager.groups, self._peaks, self._plain_peaks, strict=True)
        )
        return TargetStatistics(
            num_suspensions=num_suspensions,
            num_steps=self._num_steps,
            groups=groups,
            pages=self._recorder.history(),
        )


def group_name(group: LayerGroup) -> str:
    """Say what a layer group keeps."""
    if group.retention is Retention.WINDOW:
        sinks = f" + {group.sink_tokens} sinks" if group.sink_tokens else ""
        return f"window {group.window}{sinks}"
    return str(group.retention.value)


def scratch_use(group: LayerGroup, starts: Int64Array, ends: Int64Array) -> tuple[int, int]:
    """Return how many scratch blocks the steps from ``starts`` to ``ends`` have, and the slots that serve them."""
    if group.window is None or not group.scratch_per_slot:
        return 0, 0
    size = group.block_tokens
    stale_begin = np.minimum(-(-ends // size), group.sink_blocks)
    stale_end = np.maximum(stale_begin, (ends + 1 - group.window) // size)
    begin = np.maximum(stale_begin, -(-starts // size))
    blocks = np.maximum(0, np.minimum(stale_end, -(-ends // size)) - begin)
    return int(blocks.sum()), int((-(-blocks // group.scratch_per_slot)).sum())
