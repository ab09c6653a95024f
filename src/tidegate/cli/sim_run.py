"""A simulation from settings to files: one run here, or a sweep wherever its executor computes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.base import ConfigError, InternalError
from tidegate.cli import sim_report
from tidegate.cli.console import progress, show_table
from tidegate.report import OutputFolder, TokenHistory
from tidegate.sim import Cell, Executor, SimResult, SimSpec, Sweep, make_executor, run_sweep, simulate
from tidegate.workload import build_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRun:
    """One invocation. ``out`` None writes nothing."""

    sweep: Sweep
    executor: str
    jobs: int
    out: Path | None = None
    with_figures: bool = True
    shows_progress: bool = True

    def start(self) -> None:
        """Simulate, print tables, and write files when everything has succeeded.

        One run that fails raises its error. Of a sweep, failures are rows; ``ConfigError`` when no run succeeded,
        ``InternalError`` when one broke, after everything was shown.
        """
        executor = make_executor(self.executor, self.jobs)
        cells = self.sweep.cells()
        is_single = not self.sweep.axes
        check_figures(self.out is not None and self.with_figures)
        with ExitStack() as stack:
            folder = stack.enter_context(OutputFolder(self.out, self._names(is_single))) if self.out else None
            if is_single:
                self._one(cells[0], folder)
            else:
                self._many(cells, executor, folder)

    def _names(self, is_single: bool) -> list[str]:
        names = sim_report.RUN_FILES if is_single else sim_report.SWEEP_FILES
        figures = sim_report.RUN_FIGURES if is_single else sim_report.SWEEP_FIGURES
        return [*names, *(figures if self.with_figures else ())]

    def _bar(self, total: int, what: str) -> AbstractContextManager[Callable[[], None]]:
        return progress(total, what) if self.shows_progress else nullcontext(lambda: None)

    def _one(self, cell: Cell, folder: OutputFolder | None) -> None:
        spec = SimSpec.from_mapping(cell.mapping)
        workload = build_workload(spec.workload, seed=spec.seed)
        with self._bar(len(workload.requests), "requests") as advance:
            result = simulate(spec, on_finish=advance, workload=workload)
        print(f"{spec.model}, {spec.num_ranks} rank(s), seed {spec.seed}: {workload.source}")
        for table in sim_report.run_tables(result):
            show_table(table, sys.stdout)
        print(*(f"* {note}" for note in result.notes), sep="\n")
        if folder is not None:
            folder.write(sim_report.run_files(result, with_figures=self.with_figures))

    def _many(self, cells: Sequence[Cell], executor: Executor, folder: OutputFolder | None) -> None:
        records, histories = list[dict[str, Any]](), dict[str, TokenHistory]()
        num_broken = 0
        with self._bar(len(cells), "runs") as advance:
            for outcome in run_sweep(cells, _simulate, executor, advance):
                records.append(outcome.record())
                num_broken += sim_report.broken(outcome)
                if outcome.result is not None and len(histories) < sim_report.MOST_PANELS:
                    histories[outcome.cell.label] = sim_report.history_of(outcome.result)
        show_table(sim_report.sweep_table(records), sys.stdout)
        failures = [record["failure"]["message"] for record in records if "failure" in record]
        if len(failures) == len(records) and not num_broken:
            raise ConfigError(f"none of {len(records)} runs succeeded; the first says: {failures[0]}")
        if folder is not None:
            folder.write(sim_report.sweep_files(records, histories, with_figures=self.with_figures))
        if num_broken:
            raise InternalError(f"{num_broken} of {len(records)} runs broke; see the table")


def _simulate(spec: SimSpec) -> SimResult:
    """Run one cell of a sweep, in whatever process."""
    return simulate(spec)


def check_figures(are_wanted: bool) -> None:
    """Raise ``ConfigError`` before the work when figures are wanted that nobody can draw."""
    if are_wanted and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("figures need matplotlib: install tidegate[bench], or give --no-figures")
