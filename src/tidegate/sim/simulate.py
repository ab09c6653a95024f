"""One run, from its description to its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tidegate.base import Int64Array
from tidegate.cache import KVCacheManager
from tidegate.engine.simulated import (
    CostModel,
    KernelTables,
    LinearCost,
    ModelShape,
    RooflineCost,
    TableCost,
    hardware_of,
    memory_left,
    model_of,
)
from tidegate.runtime import RuntimeConfig
from tidegate.sim.fleet import Fleet
from tidegate.sim.result import PageTable, SimResult, StepTable
from tidegate.sim.spec import CostSpec, SimSpec
from tidegate.workload import Workload, build_workload


def simulate(
    spec: SimSpec, *, workload: Workload | None = None, on_finish: Callable[[], None] = lambda: None
) -> SimResult:
    """Run one description to its end. ``workload`` stands in for the one that it describes.

    Raises ``ConfigError`` for what makes no sense, and ``OutOfPages`` when the cache is too small for a request.
    """
    model = model_of(spec.model)
    asked = build_workload(spec.workload, seed=spec.seed) if workload is None else workload
    settings, notes = _settings(spec, model, asked)
    config = RuntimeConfig.from_settings(settings)
    fleet = Fleet(model.kv_layers(), config, cost_of(spec.cost, model, spec.num_ranks), num_ranks=spec.num_ranks)
    return run_fleet(fleet, asked, spec=asdict(spec), notes=notes, on_finish=on_finish)


def cost_of(spec: CostSpec, model: ModelShape, num_ranks: int) -> CostModel:
    """Return the cost model that a description names."""
    if spec.kind == "linear":
        return LinearCost(spec.fixed_ms * 1e-3, spec.per_token_us * 1e-6)
    hardware = hardware_of(spec.hardware)
    host_s = hardware.host_step_s if spec.host_ms is None else spec.host_ms * 1e-3
    if spec.tables is not None:
        return TableCost(KernelTables.read(spec.tables), num_layers=len(model.layers), host_s=host_s)
    return RooflineCost(model, hardware, num_ranks=num_ranks, tensor_parallel=spec.tensor_parallel, host_s=host_s)


def _settings(spec: SimSpec, model: ModelShape, workload: Workload) -> tuple[dict[str, Any], list[str]]:
    """Return the runtime's settings with what a file need not say, and a note for each such choice."""
    settings, notes = dict(spec.settings), []
    if not {"max_seq_len", "max_model_len"} & settings.keys():
        longest = max(request.prompt.num_tokens + request.num_output_tokens for request in workload.requests)
        settings["max_seq_len"] = longest
        notes.append(f"max_seq_len={longest}: the longest request of the workload")
    if not {"device_bytes", "pool_slots"} & settings.keys():
        hardware = hardware_of(spec.cost.hardware)
        left = memory_left(model, hardware, num_ranks=spec.num_ranks, tensor_parallel=spec.cost.tensor_parallel)
        settings["device_bytes"] = left
        notes.append(f"device_bytes={left}: what 90 % of {hardware.name}'s memory leaves beside the weights")
    return settings, notes


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
