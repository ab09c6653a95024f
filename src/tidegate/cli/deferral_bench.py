"""``tidegate bench --scenario deferral``: every deferral policy under every kind of balance, in one table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidegate.base import ConfigError
from tidegate.cli.console import progress, show_log, show_table
from tidegate.cli.deferral_cells import DeferralCell, DeferralLoad, DeferralReport, cells_of
from tidegate.cli.ranks import is_rank, start_ranks
from tidegate.report import OutputFile, draw_tokens

EngineName = Literal["fake", "reference"]
_RunCell = Callable[[str, str, Callable[[], None]], DeferralCell | None]


@dataclass(frozen=True, slots=True)
class DeferralBench:
    """One invocation."""

    load: DeferralLoad
    engine: EngineName
    model: str | None = None

    def write(self, record: Path | None, figure: Path | None) -> None:
        """Run all cells and show them; files are written when everything has succeeded.

        Raises ``InternalError`` when a cell shows a violation or outputs differ, after the table was shown.
        """
        if record and figure and record.resolve() == figure.resolve():
            raise ConfigError(f"--json and --figure both name {record}: give them different files")
        show_log()
        if self.engine == "fake":
            from tidegate.cli.deferral_fake import FakeCells

            self._run(FakeCells(self.load).run, record, figure)
        elif is_rank():
            self._run_as_rank(record, figure)
        else:
            start_ranks(self.load.num_ranks)

    def _run_as_rank(self, record: Path | None, figure: Path | None) -> None:
        from tidegate.cli.deferral_reference import ReferenceCells
        from tidegate.cli.group_model import join

        with closing(join()) as exchange:
            if exchange.size != self.load.num_ranks:
                raise ConfigError(f"--ranks {self.load.num_ranks}, but WORLD_SIZE={exchange.size}", field="ranks")
            cells = ReferenceCells(self.load, exchange, self.model)
            if 0 in exchange.local:
                self._run(cells.run, record, figure)
            else:
                for deferral, balance in cells_of():
                    cells.run(deferral, balance)

    def _run(self, run_cell: _RunCell, record: Path | None, figure: Path | None) -> None:
        with ExitStack() as stack:
            record_file = stack.enter_context(OutputFile(record)) if record else None
            figure_file = stack.enter_context(OutputFile(figure)) if figure else None
            names = cells_of()
            with progress(len(names) * self.load.num_requests, "requests") as advance:
                cells = tuple(cell for name in names if (cell := run_cell(*name, advance)) is not None)
            report = DeferralReport(self.engine, self.load, cells)
            print(*report.heading(), sep="\n")
            show_table(report.table(), sys.stdout)
            print(*report.notes(), sep="\n")
            if figure_file:
                title = f"Tokens per rank over steps, {self.load.num_ranks} ranks"
                figure_file.write(draw_tokens({f"{c.deferral}, {c.balance}": c.tokens for c in cells}, title=title))
            if record_file:
                record_file.write(report.json())
        report.check()
