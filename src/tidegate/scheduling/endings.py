"""Outputs of requests that end without being in a row."""

from __future__ import annotations

import numpy as np

from tidegate.request import FinishReason, Request, RequestOutput, Timing
from tidegate.scheduling.plan import Waiting


def output_of_unstarted(
    request: Request, reason: FinishReason = FinishReason.CAPACITY, *, now: float, error: str | None = None
) -> RequestOutput:
    """Return the end of a request that never began, as when its prompt alone can never fit."""
    return RequestOutput(
        request_id=request.request_id,
        prompt=request.prompt,
        tokens=np.zeros(0, dtype=np.int32),
        finish_reason=reason,
        timing=Timing(arrival_s=request.arrival_s, admitted_s=None, first_token_s=None, finished_s=now),
        error=error,
    )


def output_of_waiting(waiting: Waiting, reason: FinishReason, *, now: float) -> RequestOutput:
    """Return the end of a waiting or suspended request, with what it had produced."""
    request, past = waiting.request, waiting.milestones
    return RequestOutput(
        request_id=request.request_id,
        prompt=request.prompt,
        tokens=waiting.candidate.tokens[request.num_prompt_tokens :].copy(),
        finish_reason=reason,
        timing=Timing(
            arrival_s=request.arrival_s,
            admitted_s=past.admitted_s,
            first_token_s=past.first_token_s,
            finished_s=now,
        ),
        num_cached_tokens=past.num_cached_tokens,
        num_suspensions=past.num_suspensions,
    )
