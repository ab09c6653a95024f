"""Computes in processes of this machine.

Why not ``concurrent.futures``: when one process dies there, every call in flight is lost and nobody knows which one
did it. Here a process has one call at a time, so a death names its item, and the next item gets a new process.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.resource_tracker
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from tidegate.base import InternalError, check_integer
from tidegate.sim.executors import MOST_JOBS, Lost

T = TypeVar("T")
R = TypeVar("R")

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ENDING_S = 5.0
_AHEAD = 4
"""Results per process that may wait for an earlier one: what nobody has asked for yet must not fill memory."""


class ProcessExecutor:
    """``jobs`` processes, started afresh for each ``map``; each computes with one thread.

    An interrupt reaches this process only; however ``map`` ends, no process is left.
    """

    def __init__(self, jobs: int) -> None:
        check_integer("jobs", jobs, 1, MOST_JOBS)
        self._jobs = jobs

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[], None] = lambda: None
    ) -> Iterator[R | Lost]:
        """Yield a result for each item. Raises ``InternalError`` with the traceback of what the function raised."""
        waiting = deque(range(len(items)))
        results: dict[int, Any] = {}
        workers: list[_Worker] = []
        due = 0
        try:
            while due < len(items):
                while waiting and len(workers) < min(self._jobs, len(items)):
                    workers.append(_Worker(function))
                for worker in workers:
                    if worker.index is None and waiting and waiting[0] < due + self._jobs * _AHEAD:
                        index = waiting.popleft()
                        worker.send(index, items[index])
                for worker in _ready(workers):
                    ended, result, is_alive = worker.receive()
                    if not is_alive:
                        workers.remove(worker)
                        worker.end()
                    if ended is not None:
                        results[ended] = result
                        on_done()
                while due in results:
                    yield results.pop(due)
                    due += 1
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.end()


class _Worker:
    """A process, and which item it has."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.index: int | None = None
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, function), daemon=True)
        with _environment(dict.fromkeys(_THREADS, "1")), _undisturbed():
            self.process.start()
        theirs.close()

    def send(self, index: int, item: object) -> None:
        self.index = index
        with suppress(OSError):  # it has died; ``receive`` says so
            self.connection.send(item)

    def receive(self) -> tuple[int | None, object, bool]:
        """Return which item has ended, its result, and whether the process lives on."""
        index, self.index = self.index, None
        try:
            kind, content = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(_ENDING_S)
            return index, Lost(f"the process ended with {_cause(self.process.exitcode)}"), False
        if kind == "raised":
            raise InternalError(f"a simulating process raised: {content}")
        return index, content, True

    def end(self) -> None:
        self.connection.close()
        self.process.join(_ENDING_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    busy = [worker.connection for worker in workers if worker.index is not None]
    ready = wait(busy)
    return [worker for worker in workers if worker.connection in ready]


def _cause(code: int | None) -> str:
    if code is None:
        return "its pipe closed"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Answer until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            answer = pickle.dumps(("result", function(item)))
        except Exception:
            answer = pickle.dumps(("raised", traceback.format_exc()))
        try:
            connection.send_bytes(answer)
        except OSError:
            return


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a process that starts now; what reads them does so when it is imported there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start a process with interrupts blocked, so that it shows none of its own before it can ignore them."""
    multiprocessing.resource_tracker.ensure_running()  # it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
