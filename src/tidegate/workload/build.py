"""From settings to a workload: made up from distributions, or read from a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.base import Int64Array
from tidegate.workload.arrivals import draw_arrivals
from tidegate.workload.content import Content
from tidegate.workload.fields import Fields
from tidegate.workload.lengths import draw_lengths
from tidegate.workload.traces import read_trace
from tidegate.workload.workload import Workload, WorkloadRequest

_MOST_REQUESTS = 1 << 24
# Texts are numbered by what they are, so that adding sessions does not change what prefixes say.
_PREFIX, _PROMPT, _OUTPUT = 1 << 40, 2 << 40, 3 << 40


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """Shared texts that prompts begin with, and which one each request or session takes."""

    lengths: Int64Array
    chosen: Int64Array
    declare: bool


def build_workload(mapping: Mapping[str, Any], *, seed: int) -> Workload:
    """Make a workload. Equal settings and seeds give equal workloads. Raises ``ConfigError`` naming the field.

    ``requests``: how many, or with ``sessions`` how many sessions; ``arrivals``, ``input``, ``output``: see
    ``draw_arrivals`` and ``draw_lengths``. ``prefixes``: ``count`` shared texts of ``length`` tokens, of which text
    ``i`` is taken with weight ``1 / (i + 1) ** zipf``; they are declared checkpoints with ``declare``. ``sessions``:
    ``turns`` (a length) per session, each after the one before and ``think_s`` seconds; every turn's prompt is all that
    was said, and ``input`` more tokens. With ``trace`` the requests are a file's: see ``read_trace``.
    """
    fields = Fields("workload", mapping)
    if fields.get("trace") is not None:
        return read_trace(fields)
    count = fields.integer("requests", 100, low=1, high=_MOST_REQUESTS)
    streams = np.random.default_rng(seed).spawn(6)
    arrivals, concurrency = draw_arrivals("workload.arrivals", fields.get("arrivals", "at_once"), count, streams[0])
    sessions = fields.get("sessions")
    turns, think_s = np.ones(count, dtype=np.int64), 0.0
    if sessions is not None:
        of_sessions = Fields("workload.sessions", sessions)
        turns = draw_lengths("workload.sessions.turns", of_sessions.get("turns", 3), count, streams[1])
        think_s = of_sessions.real("think_s", 0.0)
        of_sessions.done()
    total = int(turns.sum())
    prompts = draw_lengths("workload.input", fields.get("input", 512), total, streams[2])
    outputs = draw_lengths("workload.output", fields.get("output", 128), total, streams[3])
    prefixes = _prefixes(fields.get("prefixes"), count, streams[4])
    thinking = streams[5].exponential(think_s, total) if think_s else np.zeros(total)
    fields.done()
    requests, first = list[WorkloadRequest](), 0
    for session, num_turns in enumerate(turns.tolist()):
        places = range(first, first + num_turns)
        requests += _session(
            session,
            float(arrivals[session]),
            [(place, int(prompts[place]), int(outputs[place]), float(thinking[place])) for place in places],
            prefixes,
            is_session=sessions is not None,
        )
        first += num_turns
    return Workload(source="made up", requests=tuple(requests), concurrency=concurrency)


def _prefixes(spec: object, count: int, draw: np.random.Generator) -> _Prefixes | None:
    if spec is None:
        return None
    fields = Fields("workload.prefixes", spec)
    num_texts = fields.integer("count", 1, low=1, high=_MOST_REQUESTS)
    lengths = draw_lengths("workload.prefixes.length", fields.get("length", 256), num_texts, draw)
    weights = 1.0 / np.arange(1, num_texts + 1) ** fields.real("zipf", 0.0, high=100.0)
    declare = fields.flag("declare", False)
    fields.done()
    return _Prefixes(lengths, draw.choice(num_texts, count, p=weights / weights.sum()), declare)


def _session(
    session: int,
    arrival_s: float,
    turns: list[tuple[int, int, int, float]],
    prefixes: _Prefixes | None,
    *,
    is_session: bool,
) -> list[WorkloadRequest]:
    segments, requests = list[tuple[int, int]](), list[WorkloadRequest]()
    declared: tuple[int, ...] = ()
    if prefixes is not None:
        text = int(prefixes.chosen[session])
        segments.append((_PREFIX + text, int(prefixes.lengths[text])))
        declared = (segments[0][1],) if prefixes.declare else ()
    for turn, (place, length, output, think_s) in enumerate(turns):
        segments.append((_PROMPT + place, length))
        keys, lengths = (np.array(column, dtype=np.int64) for column in zip(*segments, strict=True))
        requests.append(
            WorkloadRequest(
                request_id=f"{session}.{turn}" if is_session else str(session),
                prompt=Content(keys, np.zeros(len(keys), dtype=np.int64), lengths),
                num_output_tokens=output,
                output_key=_OUTPUT + place,
                arrival_s=arrival_s,
                after=f"{session}.{turn - 1}" if turn else None,
                think_s=think_s if turn else 0.0,
                conversation_id=str(session) if is_session else None,
                declared=declared,
            )
        )
        segments.append((_OUTPUT + place, output))
    return requests
