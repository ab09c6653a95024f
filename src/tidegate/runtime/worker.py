"""Where a step computes: in place, or in a thread so that the next step is planned meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from tidegate.runtime.drawing import Drawn


class Worker(Protocol):
    """Runs one job at a time, in order."""

    def submit(self, job: Callable[[], Drawn]) -> Future[Drawn]:
        """Start a job; its exception, if any, comes out of the future."""
        ...

    def close(self) -> None:
        """Wait for the last job and stop."""
        ...


class InlineWorker:
    """Runs the job at once, in the caller's thread."""

    def submit(self, job: Callable[[], Drawn]) -> Future[Drawn]:
        """Run the job and return a future that is done."""
        future: Future[Drawn] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # the engine is foreign code: whatever it raises belongs to the step
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing: no job outlives ``submit``."""


class ThreadWorker:
    """Runs jobs in one thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidegate-step")

    def submit(self, job: Callable[[], Drawn]) -> Future[Drawn]:
        """Queue the job and return its future."""
        return self._pool.submit(job)

    def close(self) -> None:
        """Wait for the last job and end the thread."""
        self._pool.shutdown(wait=True)
