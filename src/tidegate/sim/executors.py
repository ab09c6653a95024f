"""Where many calls of one function compute: here, in processes of this machine, or on a cluster. Order is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidegate.base import ConfigError, check_integer, shown

EXECUTORS = ("serial", "process", "ray")
MOST_JOBS = 1024
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Lost:
    """What there is of a call whose process died before it could answer."""

    message: str


class Executor(Protocol):
    """Calls a function for each of some items."""

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[], None] = lambda: None
    ) -> Iterator[R | Lost]:
        """Yield a result for each item, in the order of items; ``on_done`` is called whenever one is there.

        ``function``, items and results must be picklable. What the function raises ends everything; a process that
        dies is the end of its item only.
        """
        ...


class SerialExecutor:
    """Computes in this process, one after another."""

    def map(
        self, function: Callable[[T], R], items: Sequence[T], on_done: Callable[[], None] = lambda: None
    ) -> Iterator[R | Lost]:
        """Yield a result for each item."""
        for item in items:
            result = function(item)
            on_done()
            yield result


def make_executor(kind: str, jobs: int = 1) -> Executor:
    """Return the executor of a name. ``jobs``: how many compute at once, with processes or on Ray.

    Raises ``ConfigError`` for a kind that is unknown or not installed.
    """
    check_integer("jobs", jobs, 1, MOST_JOBS)
    if kind == "serial":
        if jobs > 1:
            raise ConfigError(f"jobs={jobs} must be 1 with executor='serial'; use 'process'", field="jobs")
        return SerialExecutor()
    if kind == "process":
        from tidegate.sim.process_executor import ProcessExecutor

        return ProcessExecutor(jobs)
    if kind == "ray":
        try:
            from tidegate.sim.ray_executor import RayExecutor
        except ImportError as error:
            raise ConfigError(
                f"executor='ray' needs Ray: pip install 'tidegate[ray]' ({error})", field="executor"
            ) from error
        return RayExecutor(jobs)
    raise ConfigError(f"executor={shown(kind)} must be one of {list(EXECUTORS)}", field="executor")
