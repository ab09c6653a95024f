"""Azure LLM inference traces: CSV of TIMESTAMP (date and time), ContextTokens, GeneratedTokens."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tidegate.workload.traces.lines import Line, csv_lines
from tidegate.workload.traces.rows import Rows, TraceRow, plain_text

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read(path: Path) -> Rows:
    """Yield requests; times count from the first."""
    start: datetime | None = None
    for row, line in enumerate(csv_lines(path, _COLUMNS)):
        time = _time(line)
        start = start or time
        seconds = (time - start).total_seconds()
        if seconds < 0:
            line.fail("TIMESTAMP", line.get("TIMESTAMP"), "at or after the first line's")
        yield TraceRow(
            arrival_s=seconds,
            prompt=plain_text(row, line.integer("ContextTokens", 1)),
            num_output_tokens=line.integer("GeneratedTokens", 1),
        )


def _time(line: Line) -> datetime:
    """Return a time; the traces have seven digits below the second, of which six can be kept."""
    text = str(line.get("TIMESTAMP"))
    head, dot, digits = text.partition(".")
    try:
        return datetime.fromisoformat(f"{head}.{digits[:6]:0<6}" if dot and digits.isdigit() else text)
    except ValueError:
        line.fail("TIMESTAMP", text, "a date and time like 2023-11-16 18:15:46.68")
