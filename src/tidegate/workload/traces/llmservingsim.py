"""LLMServingSim workloads: JSONL of arrival_time_ns, input_toks, output_toks and, where known, input_tok_ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tidegate.workload.content import VOCAB_SIZE
from tidegate.workload.traces.lines import json_lines
from tidegate.workload.traces.rows import Rows, TraceRow, given_text, plain_text


def read(path: Path) -> Rows:
    """Yield requests; lengths rule, and token ids must agree with them."""
    for row, line in enumerate(json_lines(path)):
        length = line.integer("input_toks", 1)
        prompt = plain_text(row, length)
        if line.record.get("input_tok_ids"):
            tokens = line.integers("input_tok_ids", VOCAB_SIZE - 1)
            if len(tokens) != length:
                line.fail("input_tok_ids", f"{len(tokens)} ids", f"input_toks={length} ids")
            prompt = given_text(np.array(tokens, dtype=np.int32))
        yield TraceRow(
            arrival_s=line.seconds("arrival_time_ns", 1e-9),
            prompt=prompt,
            num_output_tokens=line.integer("output_toks", 1),
        )
