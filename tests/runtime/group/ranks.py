"""Ranks as real processes that start quickly: forks of one process that has imported torch already."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import time
import warnings
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.runtime.group import rank_program
from tidegate.runtime.group import GroupEnvironment
from tidegate.runtime.group.store import host_store, listen

PROMISE_S = 10.0
"""Within this time after a death the others have named it and are gone."""

_GUARD_S = 120.0
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one rank ended: exit code (negative for a signal, None when it did not end), and what it wrote."""

    code: int | None
    out: str
    err: str


def run_program(
    folder: Path, num_ranks: int, *arguments: str, is_hosted_by_rank_0: bool = False, never_ends: int | None = None
) -> list[Ended]:
    """Run ``rank_program`` on each rank and wait; after the first death the others have ``PROMISE_S``.

    A rank that ``never_ends`` is not waited for, and killed in the end.
    """
    listener = listen(_ADDRESS)
    port = listener.getsockname()[1]
    if is_hosted_by_rank_0:
        listener.close()
        store = None
    else:
        store = host_store(_ADDRESS, listener, _GUARD_S)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    processes: list[BaseProcess] = []
    for rank in range(num_ranks):
        environment = GroupEnvironment(rank, num_ranks, _ADDRESS, port, not is_hosted_by_rank_0)
        processes.append(context.Process(target=_rank, args=(environment, arguments, folder), daemon=True))
        processes[-1].start()
    try:
        _wait([process for rank, process in enumerate(processes) if rank != never_ends])
        return [
            Ended(process.exitcode, _read(folder / f"{rank}.out"), _read(folder / f"{rank}.err"))
            for rank, process in enumerate(processes)
        ]
    finally:
        for process in processes:
            process.kill()
            process.join()
        del store


def _wait(processes: list[BaseProcess]) -> None:
    deadline = time.monotonic() + _GUARD_S
    running = list(processes)
    is_first = True
    while running and time.monotonic() < deadline:
        multiprocessing.connection.wait([p.sentinel for p in running], max(0.0, deadline - time.monotonic()))
        running = [p for p in running if p.exitcode is None]
        if is_first and any(p.exitcode for p in processes):
            is_first, deadline = False, time.monotonic() + PROMISE_S


def _rank(environment: GroupEnvironment, arguments: tuple[str, ...], folder: Path) -> None:
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{environment.rank}.{name}", os.O_CREAT | os.O_WRONLY), descriptor)
    warnings.simplefilter("error")
    os.environ.update(environment.variables())
    sys.exit(rank_program.main(list(arguments)))


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
