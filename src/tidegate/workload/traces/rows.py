"""What every trace comes to: rows of requests, made into a workload in one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.base import Int32Array
from tidegate.workload.content import Content

# Texts of traces are numbered apart from each other: blocks by their ids, what has none by its row.
_BLOCK, _ROW, OUTPUT = 4 << 40, 5 << 40, 6 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request as a trace tells it. ``after`` is the row of the turn before, ``think_s`` the pause between."""

    arrival_s: float
    prompt: Content
    num_output_tokens: int
    after: int | None = None
    think_s: float = 0.0
    conversation_id: str | None = None
    declared: tuple[int, ...] = ()


def plain_text(row: int, length: int) -> Content:
    """Return a text that no other row has."""
    return Content(np.array([_ROW + row]), np.zeros(1, dtype=np.int64), np.array([length]))


def given_text(tokens: Int32Array) -> Content:
    """Return a text whose tokens the trace has."""
    nothing = np.zeros(0, dtype=np.int64)
    return Content(nothing, nothing, nothing, given=tokens)


def block_text(ids: Sequence[int], block_tokens: int, length: int, row: int) -> Content:
    """Return ``length`` tokens in blocks with ids; what they do not cover is the row's own."""
    covered = min(len(ids), -(-length // block_tokens))
    lengths = np.full(covered, block_tokens, dtype=np.int64)
    keys = np.array(ids[:covered], dtype=np.int64) + _BLOCK
    rest = length - covered * block_tokens
    if rest > 0:
        keys, lengths = np.append(keys, _ROW + row), np.append(lengths, rest)
    elif covered:
        lengths[-1] += rest
    return Content(keys, np.zeros(len(keys), dtype=np.int64), lengths)


Rows = Iterator[TraceRow]
