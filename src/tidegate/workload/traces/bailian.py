"""Bailian traces: JSONL of chat_id, parent_chat_id (-1: none), timestamp (s), lengths, hash_ids of 16-token blocks."""

from __future__ import annotations

from pathlib import Path

from tidegate.workload.traces.lines import json_lines
from tidegate.workload.traces.rows import Rows, TraceRow, block_text

BLOCK_TOKENS = 16


def read(path: Path) -> Rows:
    """Yield requests; a chat's turn comes after its parent's, where the parent is in the file."""
    row_of, root_of, came = dict[int, int](), dict[int, int](), dict[int, float]()
    for row, line in enumerate(json_lines(path)):
        chat = line.integer("chat_id", 0, 1 << 60)
        if chat in row_of:
            line.fail("chat_id", chat, "a number that no line before has")
        parent = line.integer("parent_chat_id", -1, 1 << 60)
        arrival_s = line.seconds("timestamp")
        root_of[chat] = root_of.get(parent, chat)
        row_of[chat], came[chat] = row, arrival_s
        length = line.integer("input_length", 1)
        yield TraceRow(
            arrival_s=arrival_s,
            prompt=block_text(line.integers("hash_ids", 1 << 40), BLOCK_TOKENS, length, row),
            num_output_tokens=line.integer("output_length", 1),
            after=row_of.get(parent),
            think_s=max(arrival_s - came.get(parent, arrival_s), 0.0),
            conversation_id=str(root_of[chat]),
        )
