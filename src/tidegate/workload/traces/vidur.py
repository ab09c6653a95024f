"""Vidur's request traces: CSV of arrived_at (s), num_prefill_tokens, num_decode_tokens."""

from __future__ import annotations

from pathlib import Path

from tidegate.workload.traces.lines import csv_lines
from tidegate.workload.traces.rows import Rows, TraceRow, plain_text

_COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def read(path: Path) -> Rows:
    """Yield requests."""
    for row, line in enumerate(csv_lines(path, _COLUMNS)):
        yield TraceRow(
            arrival_s=line.seconds("arrived_at"),
            prompt=plain_text(row, line.integer("num_prefill_tokens", 1)),
            num_output_tokens=line.integer("num_decode_tokens", 1),
        )
