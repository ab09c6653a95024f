"""A replay from a trace to files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate.cli.console import progress, show_table
from tidegate.cli.csv_text import csv_text
from tidegate.cli.sim_run import check_figures
from tidegate.report import OutputFolder, draw_curves
from tidegate.sim.replay import ReplaySpec, ReplayTable, replay_table
from tidegate.workload import build_workload

_BELADY = "belady"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One invocation. ``trace`` is a workload's description; ``out`` None writes nothing."""

    trace: Mapping[str, Any]
    spec: ReplaySpec
    with_bound: bool = True
    out: Path | None = None
    with_figures: bool = True
    shows_progress: bool = True

    def start(self) -> None:
        """Replay, print the table, and write files when everything has succeeded."""
        names = ["replay.json", "replay.csv", *(["hit_rate.png"] if self.with_figures else [])]
        check_figures(self.out is not None and self.with_figures)
        with ExitStack() as stack:
            folder = stack.enter_context(OutputFolder(self.out, names)) if self.out else None
            workload = build_workload(self.trace, seed=0)
            total = len(workload.requests) * len(self.spec.pool_blocks) * len(self.spec.chosen)
            bar = progress(total, "requests") if self.shows_progress else nullcontext(lambda: None)
            with bar as advance:
                table = replay_table(workload, self.spec, lambda done, total: advance())
            if not self.with_bound:
                table = without_bound(table)
            show_table(table.to_table(), sys.stdout)
            if folder is not None:
                folder.write(replay_files(table, with_figures=self.with_figures))


def without_bound(table: ReplayTable) -> ReplayTable:
    """Return the table with policies only, and nothing compared with the bound."""
    rows = tuple(replace(row, share_of_belady=None, gap_closed=None) for row in table.rows if row.policy != _BELADY)
    return replace(table, rows=rows)


def replay_files(table: ReplayTable, *, with_figures: bool) -> dict[str, str | bytes]:
    """Return the files of a replay."""
    rows = table.to_rows()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    files: dict[str, str | bytes] = {"replay.json": table.to_json(), "replay.csv": csv_text(columns, rows)}
    if with_figures:
        curves: dict[str, list[tuple[float, float]]] = {}
        endless = None
        for row in table.rows:
            if row.pool_blocks is None:
                endless = row.hit_rate
            else:
                curves.setdefault(row.policy, []).append((row.pool_blocks, row.hit_rate))
        files["hit_rate.png"] = draw_curves(
            {name: sorted(points) for name, points in curves.items()},
            title=f"Hit rate of {table.source}, blocks of {table.block_tokens} tokens",
            across="blocks in the cache",
            up="share of prompt tokens reused",
            limit=endless,
        )
    return files
