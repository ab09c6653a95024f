"""Orders: who waits first, who is suspended first."""

from __future__ import annotations

import numpy as np

from tidegate.base import BoolArray, Int64Array
from tidegate.request import QueueKey, Request, RunningSequences
from tidegate.scheduling.config import PolicyName


def queue_key(policy: PolicyName, request: Request, order: int) -> QueueKey:
    """Return a waiting request's place. ``order`` is that of submission, so a suspended request is not put back."""
    return (request.priority if policy == "priority" else 0, order)


def victim_order(sequences: RunningSequences, rows: Int64Array) -> Int64Array:
    """Sort ``rows`` by who gives way first: the lowest priority (largest number), then the most recently admitted."""
    return rows[np.lexsort((-sequences.admission[rows], -sequences.priority[rows]))]


def prefill_order(sequences: RunningSequences, rows: Int64Array, policy: PolicyName) -> Int64Array:
    """Sort ``rows`` by whose next chunk comes first."""
    if policy == "priority":
        return rows[np.lexsort((sequences.admission[rows], sequences.priority[rows]))]
    return rows[np.argsort(sequences.admission[rows], kind="stable")]


def has_progressed(sequences: RunningSequences, rows: Int64Array) -> BoolArray:
    """Tell which rows may be suspended: those never suspended before, or with a token since they came back.

    A sequence re-enters with ``target`` tokens known, so any more means that it produced one.
    """
    progressed: BoolArray = (sequences.num_suspensions[rows] == 0) | (
        sequences.num_tokens[rows] > sequences.target[rows]
    )
    return progressed
