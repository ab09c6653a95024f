"""Starts the ranks of a group as processes of this machine, and ends them together.

Why not ``torchrun``'s own launcher: it sends SIGTERM to the survivors within a tenth of a second of a death, before
they can say which rank is missing. Here they get ``naming_s`` for it. The store lives in the launcher, so it survives
any rank. The program is the same under either, for it sees the same environment variables.

A rank does not outlive its launcher: the kernel kills it when the launcher's thread ends, however that happens.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tidegate.base import ConfigError, check_integer, check_real
from tidegate.runtime.group.environment import GroupEnvironment
from tidegate.runtime.group.exchange import MAX_RANKS
from tidegate.runtime.group.outcome import RankFailure, RanksOutcome
from tidegate.runtime.group.store import host_store, listen

_ADDRESS = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_STORE_S = 60.0
_TIDY_S = 3.0


def run_ranks(
    num_ranks: int,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    naming_s: float = 10.0,
    ending_s: float = 5.0,
    on_start: Callable[[Sequence[int]], None] | None = None,
) -> RanksOutcome:
    """Run the command line ``argv`` once per rank and wait for all; their output is this process's.

    ``environment`` (default: this process's) is completed by the variables of ``GroupEnvironment``. When a rank ends
    badly, the others have ``naming_s`` to end by themselves; then they get SIGTERM and, ``ending_s`` later, SIGKILL.
    ``on_start`` is told the process numbers by rank. Whatever happens in between, no rank is left when this returns.
    """
    check_integer("num_ranks", num_ranks, 1, MAX_RANKS)
    check_real("naming_s", naming_s, 0.0, 3600.0)
    check_real("ending_s", ending_s, 0.0, 3600.0)
    if not argv:
        raise ConfigError("argv=[] must be a command line", field="argv", value=argv)
    listener = listen(_ADDRESS)
    port = listener.getsockname()[1]
    variables = dict(os.environ if environment is None else environment)
    bound = _bound_to_this_process()
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        # Before the store, whose threads a fork would have to fear. A rank that comes early waits in the queue.
        for rank in range(num_ranks):
            own = GroupEnvironment(rank, num_ranks, _ADDRESS, port, is_store_hosted=True).variables()
            ranks.append(subprocess.Popen(list(argv), env=variables | own, preexec_fn=bound))
        store = host_store(_ADDRESS, listener, _STORE_S)
        if on_start is not None:
            on_start([process.pid for process in ranks])
        outcome = _wait(ranks, naming_s, ending_s)
        del store  # it was needed until here
        return outcome
    finally:
        listener.close()
        _end(ranks)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt what still runs, so that it can put its files in order, and kill what does not end by that."""
    for process in ranks:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _TIDY_S
    for process in ranks:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.wait()


def _bound_to_this_process() -> Callable[[], None]:
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def bind() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be bound to
            os._exit(1)

    return bind


def _wait(ranks: Sequence[subprocess.Popen[bytes]], naming_s: float, ending_s: float) -> RanksOutcome:
    """Wait for all ranks; after the first failure the deadlines run."""
    failures: list[RankFailure] = []
    stopped: list[int] = []
    running = dict(enumerate(ranks))
    patience = iter([(naming_s, signal.SIGTERM), (ending_s, signal.SIGKILL)])
    deadline, next_signal = float("inf"), None
    while running:
        for rank in _ended(running, deadline):
            code = running.pop(rank).wait()
            if code and not failures:
                wait_s, next_signal = next(patience)
                deadline = time.monotonic() + wait_s
            if code and rank not in stopped:
                failures.append(RankFailure(rank, code))
        if running and next_signal is not None and time.monotonic() >= deadline:
            stopped += [rank for rank in running if rank not in stopped]
            for process in running.values():
                process.send_signal(next_signal)
            wait_s, next_signal = next(patience, (float("inf"), None))
            deadline = time.monotonic() + wait_s
    return RanksOutcome(tuple(failures), tuple(sorted(stopped)))


def _ended(running: Mapping[int, subprocess.Popen[bytes]], deadline: float) -> list[int]:
    """Wait until at least one process has ended, or the deadline has passed, and return the ended ranks."""
    poll = select.poll()
    descriptors = {os.pidfd_open(process.pid): rank for rank, process in running.items()}
    try:
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        timeout_ms = None if deadline == float("inf") else max(0.0, deadline - time.monotonic()) * 1e3
        return sorted(descriptors[descriptor] for descriptor, _ in poll.poll(timeout_ms))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
