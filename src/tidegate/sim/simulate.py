"""One run, from its description to its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tidegate.base import Int64Array
from tidegate.cache import KVCacheManager
from tidegate.sim.fleet import Fleet
from tidegate.sim.result import PageTable, SimResult, StepTable
from tidegate.workload import Workload


def run_fleet(
    fleet: Fleet,
    workload: Workload,
    *,
    spec: dict[str, Any],
    notes: Sequence[str] = (),
    on_finish: Callable[[], None] = lambda: None,
) -> SimResult:
    """Serve a workload and return what was seen. ``spec`` and ``notes`` are for the record."""
    fleet.run(workload, on_finish)
    schedulers = [rank.scheduler.statistics() for rank in fleet.group.ranks]
    table = fleet.served.table()
    return SimResult(
        spec=spec,
        requests=table,
        steps=_step_table(fleet),
        pages=_page_table(fleet),
        makespan_s=float(table.finished_s.max(initial=0.0)),
        balance=fleet.group.meter.ratio,
        balance_by_time=fleet.group.meter.ratio_by_time,
        suspensions=sum(s.suspended for s in schedulers),
        recomputed_tokens=sum(s.recomputed_tokens for s in schedulers),
        held_page_s=fleet.held_page_s,
        notes=tuple(notes),
    )


def _step_table(fleet: Fleet) -> StepTable:
    steps = fleet.steps
    return StepTable(
        ended_s=steps.ended_s.rows().astype(np.float64),
        step_s=steps.step_s.rows().astype(np.float64),
        shared_s=steps.shared_s.rows().astype(np.float64),
        tokens=steps.tokens.rows().astype(np.int32),
        held=steps.held.rows().astype(np.int32),
    )


def _page_table(fleet: Fleet) -> PageTable:
    manager = fleet.group.ranks[0].manager
    statistics = [rank.manager.statistics() for rank in fleet.group.ranks]
    at_s, owned, in_use = fleet.pages.arrays()
    peaks: Int64Array = np.array([[pool.peak_in_use for pool in s.pools] for s in statistics])
    sizes = {group.pool_group: sum(group.row_bytes) for group in manager.groups}
    return PageTable(
        at_s=at_s.astype(np.float64),
        owned=owned.astype(np.int64),
        in_use=in_use.astype(np.int64),
        slots=tuple(pool.slots for pool in statistics[0].pools),
        groups=group_names(manager),
        page_bytes=tuple(sizes[pool_group] for pool_group in range(len(statistics[0].pools))),
        peak_in_use=tuple(peaks.max(axis=0).tolist()),
    )


def group_names(manager: KVCacheManager) -> tuple[str, ...]:
    """Return a word for each layer group: how it retains, its window, and how many layers it has."""
    return tuple(
        f"{group.retention.value}{'' if group.window is None else f' {group.window}'} × {len(group.layer_ids)}"
        for group in manager.groups
    )
