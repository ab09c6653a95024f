"""What a simulation found, as tables and as files. Equal runs give equal bytes: nothing here knows the time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tidegate.cli.csv_text import csv_text
from tidegate.report import Band, Cell, ParetoPoint, Table, TokenHistory, draw_bands, draw_pareto, draw_tokens
from tidegate.sim import Outcome, SimResult, value_text

RUN_FILES = ("result.json", "requests.csv", "steps.csv")
RUN_FIGURES = ("tokens.png", "pages.png", "balance.png")
SWEEP_FILES = ("sweep.json", "sweep.csv")
SWEEP_FIGURES = ("pareto.png", "tokens.png")
MOST_PANELS = 12
"""Runs whose tokens per rank a sweep's figure shows."""

_MS = 1000.0
_REQUEST_COLUMNS = (
    "request_id",
    "conversation_id",
    "rank",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "suspensions",
    "finish_reason",
    "arrival_s",
    "seat_s",
    "admitted_s",
    "first_token_s",
    "finished_s",
)


def run_tables(result: SimResult) -> list[Table]:
    """Return what is printed of one run."""
    summary = result.summary()
    names = ("requests", "unfinished", "makespan_s", "steps", "input_tokens", "output_tokens", "output_tokens_per_s")
    others = ("balance", "balance_by_time", "suspensions", "recomputed_tokens", "held_page_s", "hit_rate")
    latencies = {"TTFT": "ttft_s", "TPOT": "tpot_s", "end to end": "e2e_s", "step": "step_s"}
    pages = result.pages
    return [
        Table("Simulated", ("what", "value"), tuple((name, summary[name]) for name in (*names, *others))),
        Table(
            "Latency (ms)",
            ("what", "mean", "p50", "p90", "p99"),
            tuple((name, *_milliseconds(summary[key])) for name, key in latencies.items()),
        ),
        Table(
            "Pages of the busiest rank",
            ("pool group", "slots", "peak in use", "bytes of a page"),
            tuple(
                (str(place), *row)
                for place, row in enumerate(zip(pages.slots, pages.peak_in_use, pages.page_bytes, strict=True))
            ),
        ),
    ]


def run_files(result: SimResult, *, with_figures: bool) -> dict[str, str | bytes]:
    """Return the files of one run."""
    files: dict[str, str | bytes] = {
        "result.json": result.to_json(),
        "requests.csv": csv_text(_REQUEST_COLUMNS, result.request_rows()),
        "steps.csv": csv_text(
            ["ended_s", "step_s", "shared_s", "held", *_token_columns(result)], list(_step_rows(result))
        ),
    }
    if with_figures:
        files["tokens.png"] = draw_tokens({"tokens": history_of(result)}, title="Tokens per rank over steps")
        files["pages.png"] = draw_bands(page_bands(result), title="Pages over time: mean, least and most of a rank")
        files["balance.png"] = draw_bands(balance_bands(result), title="Balance over time")
    return files


def _token_columns(result: SimResult) -> list[str]:
    return [f"tokens_{rank}" for rank in range(result.steps.tokens.shape[1])]


def _step_rows(result: SimResult) -> Iterator[dict[str, object]]:
    steps, names = result.steps, _token_columns(result)
    for i in range(len(steps.step_s)):
        yield {
            "ended_s": round(float(steps.ended_s[i]), 9),
            "step_s": round(float(steps.step_s[i]), 9),
            "shared_s": round(float(steps.shared_s[i]), 9),
            "held": int(steps.held[i]),
            **dict(zip(names, steps.tokens[i].tolist(), strict=True)),
        }


def history_of(result: SimResult) -> TokenHistory:
    """Return what each rank computed in each step."""
    return TokenHistory(result.steps.tokens.astype(np.int64), result.steps.step_s)


def page_bands(result: SimResult) -> list[Band]:
    """Return pages that sequences own by layer group, then pages in use by pool group and tier."""
    pages = result.pages
    owned = [
        Band(name=f"owned: {name}", unit="pages", times_s=pages.at_s, values=pages.owned[:, :, group])
        for group, name in enumerate(pages.groups)
    ]
    in_use = [
        Band(
            name=f"in use: device, pool group {pool} of {slots:,} slots",
            unit="pages",
            times_s=pages.at_s,
            values=pages.in_use[:, :, pool],
            limit=float(slots),
        )
        for pool, slots in enumerate(pages.slots)
    ]
    return owned + in_use


def balance_bands(result: SimResult) -> list[Band]:
    """Return mean over busiest rank's tokens, step by step and so far, and how many prefills were held."""
    steps = result.steps
    tokens = steps.tokens.astype(np.float64)
    mean, most = tokens.mean(axis=1), tokens.max(axis=1, initial=0.0)
    ratio = np.divide(mean, most, out=np.ones_like(mean), where=most > 0)
    elapsed = np.cumsum(steps.step_s)
    so_far = np.divide(np.cumsum(ratio * steps.step_s), elapsed, out=np.ones_like(elapsed), where=elapsed > 0)
    return [
        Band(name="mean over busiest, per step", unit="ratio", times_s=steps.ended_s, values=ratio[:, None], limit=1.0),
        Band(
            name="mean over busiest, by time, so far",
            unit="ratio",
            times_s=steps.ended_s,
            values=so_far[:, None],
            limit=1.0,
        ),
        Band(name="prefills held", unit="requests", times_s=steps.ended_s, values=steps.held[:, None].astype(np.int64)),
    ]


def sweep_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row for each run of a sweep; ``records`` are those of ``Outcome``."""
    columns = ["tokens/s", "TTFT ms", "p99", "TPOT ms", "E2E s", "balance", "hit rate", "suspended"]
    if any("failure" in record for record in records):
        columns.append("failed")
    rows = tuple(_sweep_row(record)[: len(record["values"]) + len(columns)] for record in records)
    return Table(f"{len(records)} runs", (*_short(list(records[0]["values"])), *columns), rows)


def _short(paths: Sequence[str]) -> list[str]:
    """Return the last words of paths, or the whole of those that would not differ."""
    words = [path.rpartition(".")[2] for path in paths]
    return [word if words.count(word) == 1 else path for word, path in zip(words, paths, strict=True)]


def _sweep_row(record: Mapping[str, Any]) -> tuple[Cell, ...]:
    values = tuple(value_text(value) for value in record["values"].values())
    summary = record.get("summary")
    if summary is None:
        return (*values, *([None] * 8), f"{record['failure']['kind']}: {record['failure']['message']}")
    return (
        *values,
        summary["output_tokens_per_s"],
        *_milliseconds(summary["ttft_s"], ("mean", "p99")),
        *_milliseconds(summary["tpot_s"], ("mean",)),
        summary["e2e_s"].get("mean"),
        summary["balance_by_time"],
        summary["hit_rate"],
        summary["suspensions"],
        "",
    )


def sweep_files(
    records: Sequence[Mapping[str, Any]], histories: Mapping[str, TokenHistory], *, with_figures: bool
) -> dict[str, str | bytes]:
    """Return the files of a sweep. A figure that has nothing to show is left out."""
    rows = [_flat(record) for record in records]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    last = [name for name in columns if name.startswith("failure")]
    files: dict[str, str | bytes] = {
        "sweep.json": json.dumps({"runs": list(records)}, indent=2, sort_keys=True) + "\n",
        "sweep.csv": csv_text([name for name in columns if name not in last] + last, rows),
    }
    points = pareto_points(records)
    if with_figures and points:
        files["pareto.png"] = draw_pareto({"Throughput against time to first token": points})
    if with_figures and histories:
        files["tokens.png"] = draw_tokens(histories, title="Tokens per rank over steps")
    return files


def pareto_points(records: Sequence[Mapping[str, Any]]) -> list[ParetoPoint]:
    """Return a point for each run that produced something; its colour is the value of the first swept setting."""
    points = []
    for record in records:
        summary = record.get("summary")
        if summary is None or not summary["ttft_s"]:
            continue
        words = [f"{path.rpartition('.')[2]}={value_text(value)}" for path, value in record["values"].items()]
        points.append(
            ParetoPoint(
                label=", ".join(words[1:] or words),
                cost=summary["ttft_s"]["mean"],
                gain=summary["output_tokens_per_s"],
                series=words[0] if len(words) > 1 else "",
            )
        )
    return points


def _flat(record: Mapping[str, Any]) -> dict[str, object]:
    row: dict[str, object] = {"index": record["index"]}
    row |= {path: value_text(value) for path, value in record["values"].items()}
    for name, value in record.get("summary", {}).items():
        if isinstance(value, Mapping):
            row |= {f"{name}.{inner}": number for inner, number in value.items()}
        elif isinstance(value, list):
            row |= {f"{name}.{i}.{inner}": number for i, entry in enumerate(value) for inner, number in entry.items()}
        else:
            row[name] = value
    row |= {f"failure.{name}": text for name, text in record.get("failure", {}).items()}
    return row


def _milliseconds(values: Mapping[str, float], names: Sequence[str] = ("mean", "p50", "p90", "p99")) -> list[Cell]:
    return [values[name] * _MS if name in values else None for name in names]


def broken(outcome: Outcome) -> bool:
    """Return whether a cell failed for no reason that its settings explain."""
    return outcome.failure is not None and outcome.failure.is_broken
