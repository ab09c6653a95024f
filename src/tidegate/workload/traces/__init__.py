"""Readers of traces, one file each; a new one is its file and a line here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tidegate.base import ConfigError
from tidegate.workload.fields import Fields
from tidegate.workload.traces import azure, bailian, burstgpt, llmservingsim, mooncake, vidur
from tidegate.workload.traces.rows import OUTPUT, Rows, TraceRow
from tidegate.workload.workload import Workload, WorkloadRequest

__all__ = ["REPLAYS", "TRACE_FORMATS", "read_trace", "sample_path"]

TRACE_FORMATS: dict[str, Callable[[Path], Rows]] = {
    "azure": azure.read,
    "bailian": bailian.read,
    "burstgpt": burstgpt.read,
    "llmservingsim": llmservingsim.read,
    "mooncake": mooncake.read,
    "vidur": vidur.read,
}
REPLAYS = ("timed", "sessions", "at_once", "closed")
_SUFFIXES = {"azure": "csv", "burstgpt": "csv", "vidur": "csv"}


def sample_path(format_name: str) -> Path:
    """Return a small made-up file in a format of ``TRACE_FORMATS``."""
    return Path(__file__).parents[1] / "samples" / f"{format_name}.{_SUFFIXES.get(format_name, 'jsonl')}"


def read_trace(fields: Fields) -> Workload:
    """Read a workload from the file ``trace`` in the ``format`` of that name.

    ``limit``: the first so many requests. ``time_scale`` stretches all times. ``replay``: ``timed``, each request at
    its time; ``sessions``, turns that the trace links come after the one before has ended and its user has paused;
    ``at_once``; ``closed``, ``concurrency`` in flight at once. Raises ``ConfigError``, for a bad line with file, line
    and field.
    """
    path = Path(fields.text("trace"))
    name = fields.choice("format", tuple(TRACE_FORMATS))
    limit = fields.integer("limit", 1 << 30, low=1)
    scale = fields.real("time_scale", 1.0, high=1e6)
    replay = fields.choice("replay", REPLAYS, "timed")
    concurrency = fields.integer("concurrency", low=1) if replay == "closed" else None
    fields.done()
    rows = list(itertools.islice(TRACE_FORMATS[name](path), limit))
    if not rows:
        raise ConfigError(f"{path}: the trace is empty; it must have one request or more", field="trace")
    start = min(row.arrival_s for row in rows)
    requests = [
        _request(place, row, scale if replay in ("timed", "sessions") else 0.0, start, linked=replay == "sessions")
        for place, row in enumerate(rows)
    ]
    return Workload(source=f"{name} trace {path.name}", requests=tuple(requests), concurrency=concurrency)


def _request(place: int, row: TraceRow, scale: float, start: float, *, linked: bool) -> WorkloadRequest:
    after = row.after if linked else None
    return WorkloadRequest(
        request_id=str(place),
        prompt=row.prompt,
        num_output_tokens=row.num_output_tokens,
        output_key=OUTPUT + place,
        arrival_s=0.0 if after is not None else (row.arrival_s - start) * scale,
        after=None if after is None else str(after),
        think_s=row.think_s * scale if after is not None else 0.0,
        conversation_id=row.conversation_id,
        declared=row.declared,
    )
