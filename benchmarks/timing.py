"""Timing calls, with nothing but the call between the two readings of the clock."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def settled_heap() -> Iterator[None]:
    """Collect and freeze what exists, as a server does after start-up, so that no old object is traversed meanwhile."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def time_calls(prepare: Callable[[int], T], call: Callable[[T], object], count: int, warm_up: int = 3) -> list[float]:
    """Time ``call(prepare(i))`` ``count`` times in microseconds; neither ``prepare`` nor the first calls count."""
    elapsed = []
    with settled_heap():
        for i in range(warm_up + count):
            argument = prepare(i)
            begin = perf_counter_ns()
            call(argument)
            elapsed.append((perf_counter_ns() - begin) / 1e3)
    return elapsed[warm_up:]
