"""Computes as tasks of a Ray cluster: the same calls as in processes, placed by Ray. Needs ``tidegate[ray]``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError, WorkerCrashedError

from tidegate.base import InternalError, check_integer
from tidegate.sim.executors import MOST_JOBS, Lost

T = TypeVar("T")
R = TypeVar("R")
_AHEAD = 4
_ONE_THREAD = {"env_vars": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}}


class RayExecutor:
    """At most ``jobs`` tasks at once, one CPU each; tidegate must be importable on the workers.

    Joins the cluster that Ray is connected to, or that ``RAY_ADDRESS`` names; without one, starts Ray here and stops
    it in the end.
    """

    def __init__(self, jobs: int) -> None:
        check_integer("jobs", jobs, 1, MOST_JOBS)
        self._jobs = jobs

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[], None] = lambda: None
    ) -> Iterator[R | Lost]:
        """Yield a result for each item. Raises ``InternalError`` with the traceback of what the function raised."""
        is_ours = not ray.is_initialized()
        if is_ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(include_dashboard=False, log_to_driver=False)
        # A crash is that item's result, not a reason to try again: the same settings would crash again.
        task = ray.remote(function_of).options(num_cpus=1, max_retries=0, runtime_env=_ONE_THREAD)
        running: dict[Any, int] = {}
        results: dict[int, Any] = {}
        begun = due = 0
        try:
            while due < len(items):
                while begun < len(items) and len(running) < self._jobs and begun < due + self._jobs * _AHEAD:
                    running[task.remote(function, items[begun])] = begun
                    begun += 1
                ended, _ = ray.wait(list(running), num_returns=1)
                for call in ended:
                    results[running.pop(call)] = _result(call)
                    on_done()
                while due in results:
                    yield results.pop(due)
                    due += 1
        finally:
            for call in running:
                ray.cancel(call, force=True)
            if is_ours:
                ray.shutdown()


def function_of(function: Callable[[T], R], item: T) -> R:
    """Call a function: the task, which must be importable by name."""
    return function(item)


def _result(call: Any) -> Any:
    try:
        return ray.get(call)
    except RayTaskError as error:
        raise InternalError(f"a simulating task raised: {error}") from error
    except WorkerCrashedError as error:
        return Lost(f"the worker died: {str(error).splitlines()[0]}")
