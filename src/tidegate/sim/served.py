"""Every request's milestones, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.base import Int64Array
from tidegate.request import RequestOutput
from tidegate.workload import WorkloadRequest

Float64Array = npt.NDArray[np.float64]
_NEVER = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestTable:
    """All requests in the order in which they came; seconds of the virtual clock, NaN for what was never reached.

    ``seat_s``: end of the step in which the request's rank had a free seat for it and took it from the common queue.
    """

    request_ids: tuple[str, ...]
    conversation_ids: tuple[str | None, ...]
    reasons: tuple[str, ...]
    ranks: Int64Array
    num_prompt_tokens: Int64Array
    num_output_tokens: Int64Array
    num_cached_tokens: Int64Array
    num_suspensions: Int64Array
    arrival_s: Float64Array
    seat_s: Float64Array
    admitted_s: Float64Array
    first_token_s: Float64Array
    finished_s: Float64Array

    @property
    def ttft_s(self) -> Float64Array:
        """Time to the first token, from arrival."""
        return self.first_token_s - self.arrival_s

    @property
    def seat_ttft_s(self) -> Float64Array:
        """Time to the first token, from the free seat."""
        return self.first_token_s - self.seat_s

    @property
    def e2e_s(self) -> Float64Array:
        """Time from arrival to the last token."""
        return self.finished_s - self.arrival_s

    @property
    def tpot_s(self) -> Float64Array:
        """Mean time per output token after the first; NaN with fewer than two."""
        after = self.num_output_tokens - 1
        return np.where(after > 0, (self.finished_s - self.first_token_s) / np.maximum(after, 1), _NEVER)


@dataclass(slots=True)
class _Row:
    asked: WorkloadRequest
    arrival_s: float
    seat_s: float = _NEVER
    rank: int = -1
    output: RequestOutput | None = None


def _time(seconds: float | None) -> float:
    return _NEVER if seconds is None else seconds


@dataclass(slots=True)
class Served:
    """Notes requests as they come, find a seat and end."""

    _rows: dict[str, _Row] = field(default_factory=dict)

    def enter(self, asked: WorkloadRequest, now: float) -> None:
        """Note a request that arrives now."""
        self._rows[asked.request_id] = _Row(asked, now)

    def seat(self, request_id: str, rank: int, now: float) -> None:
        """Note that a rank took a request; the first seat counts when it changes ranks later."""
        row = self._rows[request_id]
        row.rank = rank
        if np.isnan(row.seat_s):
            row.seat_s = now

    def leave(self, output: RequestOutput) -> None:
        """Note that a request has ended."""
        self._rows[output.request_id].output = output

    def table(self) -> RequestTable:
        """Return the columns of all requests that have ended."""
        rows = [(row, row.output) for row in self._rows.values() if row.output is not None]
        return RequestTable(
            request_ids=tuple(row.asked.request_id for row, _ in rows),
            conversation_ids=tuple(row.asked.conversation_id for row, _ in rows),
            reasons=tuple(str(output.finish_reason) for _, output in rows),
            ranks=np.array([row.rank for row, _ in rows], dtype=np.int64),
            num_prompt_tokens=np.array([len(output.prompt) for _, output in rows], dtype=np.int64),
            num_output_tokens=np.array([output.num_tokens for _, output in rows], dtype=np.int64),
            num_cached_tokens=np.array([output.num_cached_tokens for _, output in rows], dtype=np.int64),
            num_suspensions=np.array([output.num_suspensions for _, output in rows], dtype=np.int64),
            arrival_s=np.array([row.arrival_s for row, _ in rows]),
            seat_s=np.array([row.seat_s for row, _ in rows]),
            admitted_s=np.array([_time(output.timing.admitted_s) for _, output in rows]),
            first_token_s=np.array([_time(output.timing.first_token_s) for _, output in rows]),
            finished_s=np.array([output.timing.finished_s for _, output in rows]),
        )
