"""Mooncake traces: JSONL of timestamp (ms), input_length, output_length, hash_ids of blocks of 512 tokens."""

from __future__ import annotations

from pathlib import Path

from tidegate.workload.traces.lines import json_lines
from tidegate.workload.traces.rows import Rows, TraceRow, block_text

BLOCK_TOKENS = 512


def read(path: Path) -> Rows:
    """Yield requests. Equal ids are equal blocks in the whole file."""
    for row, line in enumerate(json_lines(path)):
        length = line.integer("input_length", 1)
        ids = line.integers("hash_ids", 1 << 40)
        yield TraceRow(
            arrival_s=line.seconds("timestamp", 1e-3),
            prompt=block_text(ids, BLOCK_TOKENS, length, row),
            num_output_tokens=line.integer("output_length", 1),
        )
