"""BurstGPT traces: CSV of Timestamp (s), Request tokens, Response tokens; a response of 0 tokens failed."""

from __future__ import annotations

from pathlib import Path

from tidegate.workload.traces.lines import csv_lines
from tidegate.workload.traces.rows import Rows, TraceRow, plain_text

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def read(path: Path) -> Rows:
    """Yield requests, without those that failed."""
    for row, line in enumerate(csv_lines(path, _COLUMNS)):
        if line.integer("Response tokens", 0) == 0:
            continue
        yield TraceRow(
            arrival_s=line.seconds("Timestamp"),
            prompt=plain_text(row, line.integer("Request tokens", 1)),
            num_output_tokens=line.integer("Response tokens", 1),
            conversation_id=line.record.get("Session ID") or None,
        )
