"""What waits and runs on a rank, for balance and routing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.scheduling.prefill import PlanView


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """``prefill_tokens``: prompt tokens not computed yet, of waiting and running requests, after reuse as last seen.

    ``retiring`` sequences have ended but for their last open step. ``seats``: requests that may still become active.
    ``oldest_arrival_s`` is that of the first in the queue.
    """

    waiting: int
    active: int
    retiring: int
    seats: int
    prefill_tokens: int
    oldest_arrival_s: float | None


def rank_load(view: PlanView) -> RankLoad:
    """Return the load as it is now."""
    sequences = view.sequences
    active = sequences.active()
    running_tokens = int(np.maximum(sequences.target[active] - view.manager.capacity[active], 0).sum())
    first = next(iter(view.queue), None)
    return RankLoad(
        waiting=len(view.queue),
        active=len(active),
        retiring=sequences.num_used - len(active),
        seats=max(view.config.max_batch_size - len(active), 0),
        prefill_tokens=view.queue.num_tokens + running_tokens,
        oldest_arrival_s=None if first is None else first.request.arrival_s,
    )
