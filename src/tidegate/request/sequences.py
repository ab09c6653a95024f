"""Running sequences as a structure of arrays, indexed by cache row.

Row ranges of one sequence, in tokens::

    0 ........... num_prompt ........... num_tokens .......... max_length
    | prompt      | output so far        | still allowed       |
    | target: known when it was admitted | computed as prefill

Only the scheduler writes here; everybody else reads arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import BoolArray, Int32Array, Int64Array, InternalError
from tidegate.request.output import RequestOutput, Timing
from tidegate.request.phase import FinishReason, Phase, check_moves
from tidegate.request.request import Request

_NO_TOKEN = -1
_FIRST_STOP_WIDTH = 4
# Looking a member up in its enumeration costs microseconds, and these are needed several times in every step.
_PREFILL, _DECODE, _FINISHED = int(Phase.PREFILL), int(Phase.DECODE), int(Phase.FINISHED)


@dataclass(frozen=True, slots=True)
class Milestones:
    """What a request has behind it; survives suspension."""

    admitted_s: float | None = None
    first_token_s: float | None = None
    num_cached_tokens: int = 0
    num_suspensions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceStart:
    """A request entering a row: all its known tokens, how many of them it reuses, and what ends it."""

    request: Request
    order: int
    tokens: Int32Array
    max_length: int
    stop_ids: tuple[int, ...]
    milestones: Milestones
    reused: int = 0


class RunningSequences:
    """The arrays. A row is empty, active (prefill or decode), or finished and waiting for its last open step."""

    def __init__(self, max_sequences: int, max_length: int) -> None:
        n = max_sequences
        self.tokens: Int32Array = np.zeros((n, max_length), dtype=np.int32)  # touched, hence mapped, only where used
        self.is_used: BoolArray = np.zeros(n, dtype=np.bool_)
        self.is_active: BoolArray = np.zeros(n, dtype=np.bool_)
        self.phase: npt.NDArray[np.int8] = np.zeros(n, dtype=np.int8)
        self.num_prompt: Int64Array = np.zeros(n, dtype=np.int64)
        self.num_tokens: Int64Array = np.zeros(n, dtype=np.int64)
        self.target: Int64Array = np.zeros(n, dtype=np.int64)
        self.reused: Int64Array = np.zeros(n, dtype=np.int64)
        self.max_length: Int64Array = np.zeros(n, dtype=np.int64)
        self.min_length: Int64Array = np.zeros(n, dtype=np.int64)
        self.last_token: Int64Array = np.zeros(n, dtype=np.int64)
        self.priority: Int64Array = np.zeros(n, dtype=np.int64)
        self.order: Int64Array = np.zeros(n, dtype=np.int64)
        self.admission: Int64Array = np.zeros(n, dtype=np.int64)
        self.num_suspensions: Int64Array = np.zeros(n, dtype=np.int64)
        self.num_cached: Int64Array = np.zeros(n, dtype=np.int64)
        self.admitted_s: npt.NDArray[np.float64] = np.zeros(n)
        self.first_token_s: npt.NDArray[np.float64] = np.full(n, np.nan)
        self.scores_prompt: BoolArray = np.zeros(n, dtype=np.bool_)
        self.stop_ids: Int64Array = np.full((n, _FIRST_STOP_WIDTH), _NO_TOKEN, dtype=np.int64)
        self._requests: list[Request | None] = [None] * n
        self._rows: dict[str, int] = {}
        self._num_admissions = 0

    @property
    def num_used(self) -> int:
        """Rows that are not empty."""
        return int(np.count_nonzero(self.is_used))

    @property
    def num_active(self) -> int:
        """Rows in prefill or decode."""
        return len(self._rows)

    def row_of(self, request_id: str) -> int | None:
        """Return the row in which a request is active; None when it is in none."""
        return self._rows.get(request_id)

    def output_since(self, request_id: str, start: int) -> Int32Array:
        """Return an active request's output tokens from the ``start``-th on; empty for any other."""
        row = self._rows.get(request_id)
        if row is None:
            return np.zeros(0, dtype=np.int32)
        return self.tokens[row, self.num_prompt[row] + start : self.num_tokens[row]].copy()

    def active(self) -> Int64Array:
        """Return the rows in prefill or decode, ascending."""
        return self.is_active.nonzero()[0]

    def is_ended(self, rows: Int64Array) -> BoolArray:
        """Tell which rows have finished and only wait for their last open step."""
        ended: BoolArray = self.phase[rows] == _FINISHED
        return ended

    def request(self, row: int) -> Request:
        """Return the request in ``row``."""
        found = self._requests[row]
        if found is None:
            raise InternalError(f"row {row} holds no request", row=row)
        return found

    def enter(self, row: int, start: SequenceStart, *, now: float) -> None:
        """Fill an empty row; the sequence begins in prefill."""
        if self.is_used[row]:
            raise InternalError(f"row {row} is taken by {self.request(row).request_id!r}", row=row)
        request, known, past = start.request, len(start.tokens), start.milestones
        self._requests[row] = request
        self._rows[request.request_id] = row
        self.is_used[row] = self.is_active[row] = True
        self.phase[row] = _PREFILL
        self.tokens[row, :known] = start.tokens
        self.num_prompt[row] = request.num_prompt_tokens
        self.scores_prompt[row] = request.prompt_logprobs
        self.num_tokens[row] = self.target[row] = known
        self.reused[row] = start.reused
        self.max_length[row] = start.max_length
        self.min_length[row] = request.num_prompt_tokens + request.min_tokens
        self.last_token[row] = start.tokens[-1]
        self.priority[row] = request.priority
        self.order[row] = start.order
        self.admission[row] = self._num_admissions
        self._num_admissions += 1
        self.num_suspensions[row] = past.num_suspensions
        self.num_cached[row] = past.num_cached_tokens
        self.admitted_s[row] = now if past.admitted_s is None else past.admitted_s
        self.first_token_s[row] = np.nan if past.first_token_s is None else past.first_token_s
        self._set_stops(row, start.stop_ids)

    def append(self, rows: Int64Array, tokens: Int64Array, *, now: float) -> None:
        """Give each row its next token, or, from ``[n, m]`` with -1 behind, its next one or more.

        The rows decode from here on.
        """
        check_moves(self.phase[rows], Phase.DECODE)
        at = self.num_tokens[rows]
        if tokens.ndim == 2:
            tokens = self._append_many(rows, at, tokens)
        else:
            self.tokens[rows, at] = tokens
            self.num_tokens[rows] = at + 1
        self.last_token[rows] = tokens
        self.phase[rows] = _DECODE
        is_first = at == self.num_prompt[rows]
        if is_first.any():
            self.first_token_s[rows[is_first]] = now

    def _append_many(self, rows: Int64Array, at: Int64Array, tokens: Int64Array) -> Int64Array:
        """Write several tokens to each row and return the last ones."""
        is_there = tokens >= 0
        counts = is_there.sum(axis=1)
        place, column = is_there.nonzero()
        self.tokens[rows[place], at[place] + column] = tokens[place, column]
        self.num_tokens[rows] = at + counts
        last: Int64Array = tokens[np.arange(len(rows)), counts - 1]
        return last

    def is_at_stop(self, rows: Int64Array) -> BoolArray:
        """Tell which rows' last token is one of their stop tokens, past their minimum."""
        hits = self.stop_ids[rows] == self.last_token[rows, None]
        if not hits.any():
            return np.zeros(len(rows), dtype=np.bool_)
        stopped: BoolArray = hits.any(axis=1) & (self.num_tokens[rows] >= self.min_length[rows])
        return stopped

    def finish(self, row: int, reason: FinishReason, *, now: float, error: str | None = None) -> RequestOutput:
        """End a sequence and return its output; the row stays taken until ``release``."""
        check_moves(self.phase[row : row + 1], Phase.FINISHED)
        self.phase[row] = _FINISHED
        self.is_active[row] = False
        past = self.milestones(row)
        request = self.request(row)
        del self._rows[request.request_id]
        timing = Timing(
            arrival_s=request.arrival_s,
            admitted_s=past.admitted_s,
            first_token_s=past.first_token_s,
            finished_s=now,
        )
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            tokens=self.tokens[row, self.num_prompt[row] : self.num_tokens[row]].copy(),
            finish_reason=reason,
            timing=timing,
            num_cached_tokens=past.num_cached_tokens,
            num_suspensions=past.num_suspensions,
            error=error,
        )

    def milestones(self, row: int) -> Milestones:
        """Return what the request in ``row`` has behind it."""
        first = float(self.first_token_s[row])
        return Milestones(
            admitted_s=float(self.admitted_s[row]),
            first_token_s=None if np.isnan(first) else first,
            num_cached_tokens=int(self.num_cached[row]),
            num_suspensions=int(self.num_suspensions[row]),
        )

    def release(self, rows: Int64Array) -> None:
        """Empty rows, whether their sequences have finished or are suspended."""
        for row in rows[self.is_active[rows]].tolist():
            del self._rows[self.request(row).request_id]
        self.is_used[rows] = False
        self.is_active[rows] = False
        for row in rows.tolist():
            self._requests[row] = None

    def _set_stops(self, row: int, stop_ids: tuple[int, ...]) -> None:
        if len(stop_ids) > self.stop_ids.shape[1]:
            wider = np.full((len(self.stop_ids), len(stop_ids)), _NO_TOKEN, dtype=np.int64)
            wider[:, : self.stop_ids.shape[1]] = self.stop_ids
            self.stop_ids = wider
        self.stop_ids[row] = _NO_TOKEN
        self.stop_ids[row, : len(stop_ids)] = stop_ids
