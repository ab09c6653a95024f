"""What a run has shown: numbers for people, columns for files. Equal runs give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.sim.served import Float64Array, RequestTable

_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}


def distribution(values: npt.NDArray[Any]) -> dict[str, float]:
    """Return mean, p50, p90 and p99 of what is not NaN; nothing for no values."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    return {"mean": float(known.mean())} | {
        name: float(np.percentile(known, percent)) for name, percent in _PERCENTILES.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTable:
    """Steps that computed something: end and length in seconds, tokens ``[steps, ranks]``, prefills held back."""

    ended_s: Float64Array
    step_s: Float64Array
    shared_s: Float64Array
    tokens: npt.NDArray[np.int32]
    held: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageTable:
    """Samples over time: pages that sequences own ``[samples, ranks, groups]``, and pages in use ``[samples, ranks,
    pool groups]`` of ``slots`` in each pool group; names of groups and bytes of a page of each pool group."""

    at_s: Float64Array
    owned: npt.NDArray[np.int64]
    in_use: npt.NDArray[np.int64]
    slots: tuple[int, ...]
    groups: tuple[str, ...]
    page_bytes: tuple[int, ...]
    peak_in_use: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimResult:
    """One run. ``spec`` says what was simulated, ``notes`` what was assumed.

    ``held_page_s``: pages that deferred prefills kept, times seconds. ``balance`` is mean tokens of a rank over tokens
    of the busiest, as a mean over steps, and over time.
    """

    spec: dict[str, Any]
    requests: RequestTable
    steps: StepTable
    pages: PageTable
    makespan_s: float
    balance: float
    balance_by_time: float
    suspensions: int
    recomputed_tokens: int
    held_page_s: float
    notes: tuple[str, ...] = ()

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of all requests over the time until the last one ended."""
        return float(self.requests.num_output_tokens.sum()) / self.makespan_s if self.makespan_s else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were reused."""
        asked = int(self.requests.num_prompt_tokens.sum())
        return int(self.requests.num_cached_tokens.sum()) / asked if asked else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the numbers people ask for; times in seconds."""
        table = self.requests
        return {
            "requests": len(table.request_ids),
            "unfinished": sum(reason not in ("length", "stop") for reason in table.reasons),
            "makespan_s": self.makespan_s,
            "steps": len(self.steps.step_s),
            "input_tokens": int(table.num_prompt_tokens.sum()),
            "output_tokens": int(table.num_output_tokens.sum()),
            "output_tokens_per_s": self.output_tokens_per_s,
            "requests_per_s": len(table.request_ids) / self.makespan_s if self.makespan_s else 0.0,
            "ttft_s": distribution(table.ttft_s),
            "ttft_from_seat_s": distribution(table.seat_ttft_s),
            "tpot_s": distribution(table.tpot_s),
            "e2e_s": distribution(table.e2e_s),
            "step_s": distribution(self.steps.step_s),
            "balance": self.balance,
            "balance_by_time": self.balance_by_time,
            "suspensions": self.suspensions,
            "recomputed_tokens": self.recomputed_tokens,
            "held_page_s": self.held_page_s,
            "hit_rate": self.hit_rate,
            "hit_rate_by_tier": {"device": self.hit_rate},
            "pages": [
                {"slots": slots, "peak_in_use": peak, "page_bytes": size}
                for slots, peak, size in zip(
                    self.pages.slots, self.pages.peak_in_use, self.pages.page_bytes, strict=True
                )
            ],
        }

    def to_json(self) -> str:
        """Return spec, notes and summary; sorted, so that equal runs are equal texts."""
        whole = {"spec": self.spec, "notes": list(self.notes), "summary": self.summary()}
        return json.dumps(whole, indent=2, sort_keys=True) + "\n"

    def request_rows(self) -> Iterator[dict[str, object]]:
        """Yield a CSV row for each request; empty for what was never reached."""
        table = self.requests
        for i, request_id in enumerate(table.request_ids):
            yield {
                "request_id": request_id,
                "conversation_id": table.conversation_ids[i] or "",
                "rank": int(table.ranks[i]),
                "input_tokens": int(table.num_prompt_tokens[i]),
                "output_tokens": int(table.num_output_tokens[i]),
                "cached_tokens": int(table.num_cached_tokens[i]),
                "suspensions": int(table.num_suspensions[i]),
                "finish_reason": table.reasons[i],
                **{
                    name: "" if np.isnan(getattr(table, name)[i]) else round(float(getattr(table, name)[i]), 6)
                    for name in ("arrival_s", "seat_s", "admitted_s", "first_token_s", "finished_s")
                },
            }
