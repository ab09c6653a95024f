"""The benchmark itself: open, run, show, write."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.base import ConfigError, SystemClock
from tidegate.bench import Load, run_load
from tidegate.cli.bench_report import BenchReport
from tidegate.cli.console import progress, quiet_libraries, show_log, show_table
from tidegate.cli.prompt_file import PromptLine
from tidegate.cli.prompt_source import PromptSource
from tidegate.cli.ranks import is_rank, start_ranks
from tidegate.cli.served_model import ModelOpener
from tidegate.cli.settings import ModelSettings
from tidegate.cli.target import ModelTarget
from tidegate.report import OutputFile


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One invocation, checked as far as no model is needed for it."""

    settings: ModelSettings
    source: PromptSource
    load: Load
    num_ranks: int | None = None

    def start(self, open_model: ModelOpener, record: Path | None, figure: Path | None) -> None:
        """Measure in this process, or as one of several ranks, or start these and wait for them."""
        if is_rank():
            self._write_as_rank(record, figure)
        elif self.num_ranks is None:
            self.write(open_model, record, figure)
        else:
            self._check_files(record, figure)
            self.source.read()
            start_ranks(self.num_ranks)

    def _write_as_rank(self, record: Path | None, figure: Path | None) -> None:
        """Do the same as one of several ranks: rank 0 measures and shows, the others serve."""
        quiet_libraries()
        show_log()
        # Here, because it imports torch.
        from tidegate.cli.group_model import GroupModel, join, leading, serve

        with closing(join()) as exchange:
            if self.num_ranks is not None and self.num_ranks != exchange.size:
                raise ConfigError(f"--ranks {self.num_ranks}, but WORLD_SIZE={exchange.size}", field="ranks")
            served = GroupModel.open(self.settings, exchange)
            if served.group.is_leader:
                with leading(served.group):
                    replace(self, num_ranks=exchange.size).write(lambda _: served, record, figure)
            else:
                serve(served.group)

    def _check_files(self, record: Path | None, figure: Path | None) -> None:
        """Raise ``ConfigError`` for files that cannot be written, before anything takes long."""
        if record and figure and record.resolve() == figure.resolve():
            raise ConfigError(f"--json and --figure both name {record}: give them different files")
        with ExitStack() as stack:
            for path in filter(None, (record, figure)):
                stack.enter_context(OutputFile(path))

    def write(self, open_model: ModelOpener, record: Path | None, figure: Path | None) -> None:
        """Measure; print tables to stdout, and write what was asked for when everything has succeeded."""
        self._check_files(record, figure)
        lines = self.source.read()
        with ExitStack() as stack:
            record_file = stack.enter_context(OutputFile(record)) if record else None
            figure_file = stack.enter_context(OutputFile(figure)) if figure else None
            report = self._measure(open_model, lines)
            print(*report.heading(), sep="\n")
            for table in report.tables():
                show_table(table, sys.stdout)
            print(*report.notes(), sep="\n")
            if figure_file:
                figure_file.write(report.figure())
            if record_file:
                record_file.write(report.json())

    def _measure(self, open_model: ModelOpener, lines: list[PromptLine]) -> BenchReport:
        served = open_model(self.settings)
        requests = self.source.requests(lines, served)
        clock = SystemClock()
        with progress(len(requests), "requests") as advance:
            run = run_load(ModelTarget(served, clock), requests, self.load, clock, lambda _: advance())
        return BenchReport(self.settings, self.load, run, served.statistics(), self.num_ranks or 1)
