"""Orders: who waits first, who is suspended first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.base import BoolArray, Int64Array
from tidegate.request import Phase, Request, RunningSequences, WaitingQueue
from tidegate.scheduling.config import PolicyName
from tidegate.scheduling.plan import Waiting


def queue_rank(policy: PolicyName, request: Request, phase: Phase, num_uncached: int) -> int:
    """Return what a waiting request is sorted by, before its order of submission: equal ranks go first come first.

    Where short prompts go first, one that was suspended goes before all: it has waited and computed already.
    """
    if policy == "priority":
        return request.priority
    if policy == "shortest_uncached_first" and phase is Phase.WAITING:
        return num_uncached
    return 0


def in_order(
    queue: WaitingQueue[Waiting], policy: PolicyName, admitting_plans: int, starvation: int
) -> Iterator[Waiting]:
    """Yield waiting requests by rank; where short ones go first, those passed over too often come before."""
    starved: set[int] = set()
    if policy == "shortest_uncached_first":
        for waiting in queue.by_arrival():
            if admitting_plans - waiting.since < starvation:
                break
            starved.add(waiting.order)
            yield waiting
    yield from (waiting for waiting in queue if waiting.order not in starved)


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
