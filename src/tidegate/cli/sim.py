"""``tidegate sim``: the production scheduler and cache on simulated engines, one run or a sweep."""

from __future__ import annotations

from typing import Any

from tidegate.base import ConfigError
from tidegate.cli import sim_flags
from tidegate.cli.config_file import read_config

_RAY_JOBS = 64
"""Ray places as many at once as the cluster has room for."""


def sim(
    config: sim_flags.ConfigArgument = None,
    *,
    model: sim_flags.ModelFlag = None,
    ranks: sim_flags.RanksFlag = None,
    hardware: sim_flags.HardwareFlag = None,
    requests: sim_flags.RequestsFlag = None,
    seed: sim_flags.SeedFlag = None,
    set: sim_flags.SetFlag = None,
    sweep: sim_flags.SweepFlag = None,
    jobs: sim_flags.JobsFlag = None,
    executor: sim_flags.ExecutorFlag = None,
    out: sim_flags.OutFlag = None,
    figures: sim_flags.FiguresFlag = True,
    progress: sim_flags.ProgressFlag = True,
) -> None:
    """Simulate a fleet under a workload: the runtime's own scheduler, cache, balance and router, a virtual clock."""
    # Here, because help and bad flags must answer at once.
    from tidegate.cli.sim_run import SimRun
    from tidegate.sim import Sweep

    named = {
        "model": model,
        "num_ranks": ranks,
        "cost.hardware": hardware,
        "workload.requests": requests,
        "seed": seed,
    }
    values: dict[str, Any] = {path: value for path, value in named.items() if value is not None}
    for path, value in sim_flags.read_settings(set or []).items():
        if path in values:
            raise ConfigError(f"--set {path}: another flag sets it", field=path)
        values[path] = value
    plan = Sweep.from_mapping({} if config is None else read_config(config, flag="CONFIG"))
    for path, axis in sim_flags.read_axes(sweep or []).items():
        plan = plan.with_axis(path, axis)
    kind = executor.value if executor is not None else "process" if jobs is not None and jobs > 1 else "serial"
    SimRun(
        sweep=plan.with_values(values),
        executor=kind,
        jobs=jobs if jobs is not None else _RAY_JOBS if kind == "ray" else 1,
        out=out,
        with_figures=figures,
        shows_progress=progress,
    ).start()
