"""Who is alive: a thread per rank that beats in the store, looks at all others, and ends the wait for the dead.

Two sources: beats, which work across machines, and for ranks on the same machine a descriptor of their process, which
tells within milliseconds. The first rank that finds a death writes the verdict into the store, and all raise the same.

Collectives have a time-out of many minutes, because a slow step is no death. So whoever waits in one for a dead rank
must be got out: the thread calls ``on_verdict``, which breaks the group, the waiting call fails, and ``explain`` turns
its error into ``RankError``. Should the main thread not raise within the grace (it computes, or hangs in a library),
``on_dead`` is called, by default to print one line on stderr and end the process with ``EXIT_RANK_DIED``.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

from tidegate.base import Closed, RankError
from tidegate.runtime.group.processes import ProcessFacts
from tidegate.runtime.group.store import Store
from tidegate.runtime.group.verdict import (
    EXIT_RANK_DIED,
    BeatWatch,
    LeaverWatch,
    LivenessConfig,
    Verdict,
    beat,
    calls_of_leaver,
    last_beat,
    named,
)

_TOGETHER_S = 0.05
"""Deaths of the same moment are named together."""

_JOIN_S = 5.0
"""The thread ends at once, unless the store hangs."""


def end_process(verdict: Verdict) -> None:
    """Print the verdict on stderr and end the process at once, whatever its other threads do."""
    print(f"tidegate: {verdict.why}", file=sys.stderr, flush=True)
    os._exit(EXIT_RANK_DIED)


class Liveness:
    """One rank's watch over its group. ``store`` is a connection of its own, used by the thread and when leaving.

    ``with liveness:`` surrounds whatever waits for other ranks; an error of the carrier inside leaves it as
    ``RankError``. ``with liveness.next_call():`` says besides that all ranks must come.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        store: Store,
        config: LivenessConfig,
        *,
        store_host: tuple[tuple[int, ...], str],
        on_verdict: Callable[[], None],
        on_dead: Callable[[Verdict], None] = end_process,
    ) -> None:
        """``store_host`` are the ranks that die with the store (rank 0, or none) and the words for it."""
        self._rank, self._size, self._store, self._config = rank, size, store, config
        self._store_host, self._on_verdict, self._on_dead = store_host, on_verdict, on_dead
        self._verdict: Verdict | None = None
        self._known, self._raised, self._stop = threading.Event(), threading.Event(), threading.Event()
        self._count = self._num_calls = self._awaited_call = 0
        self._is_closed = False
        self._beats = [f"beat/{r}" for r in range(size)]
        self._watch = BeatWatch(rank, size, config.silent_rounds)
        self._leavers = LeaverWatch()
        self._processes: dict[int, int] = {}
        self._poll = select.poll()
        self._bell = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, name="tidegate-liveness", daemon=True)

    @property
    def num_calls(self) -> int:
        """Collectives that were completed; the same on all ranks between two of them."""
        return self._num_calls

    def start(self, timeout_s: float) -> None:
        """Register, wait until all ranks have, and begin to watch; ``RankError`` names those that did not come."""
        self._store.set(f"process/{self._rank}", ProcessFacts.of_this_process().to_text())
        self._store.set(self._beats[self._rank], beat(0))
        self._store.compare_set("verdict", "", "")
        keys = [f"process/{r}" for r in range(self._size)]
        try:
            self._store.wait([*keys, *self._beats], timedelta(seconds=timeout_s))
        except RuntimeError as error:
            missing = tuple(r for r in range(self._size) if not self._is_there(keys[r]))
            why = f"{named(missing)} did not arrive within {timeout_s:g} s" if missing else self._store_host[1]
            raise RankError(why, ranks=missing) from error
        facts = [ProcessFacts.from_text(self._store.get(key)) for key in keys]
        self._poll.register(self._bell, select.POLLIN)
        for rank, process in enumerate(facts):
            if rank != self._rank and process.is_visible():
                self._watch_process(rank, process)
        self._thread.start()

    def check(self) -> None:
        """Raise ``RankError`` if a death is known."""
        if self._verdict is not None:
            self._raised.set()
            raise self._verdict.error()

    def explain(self, error: Exception) -> RankError:
        """Find out who died, since a collective failed, and return what to raise; waits for as long as beats need."""
        if not self._known.wait(self._config.silent_s + 2 * self._config.beat_s):
            return RankError(f"the group failed and every rank is alive: {str(error).splitlines()[0]}", ranks=())
        self._raised.set()
        if self._rank in self._store_host[0]:  # the store goes with this process: others read the verdict first
            time.sleep(3 * self._config.beat_s)
        return (self._verdict or Verdict((), str(error), self._rank)).error()

    def __enter__(self) -> None:
        if self._is_closed:
            raise Closed("the exchange is closed")
        self.check()
        self._awaited_call = self._num_calls

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._awaited_call = 0
        if isinstance(error, RuntimeError):
            raise self.explain(error) from error

    @contextmanager
    def next_call(self) -> Iterator[None]:
        """Surround a collective, or a sleep before it: a rank that left without taking part in it is missed."""
        with self:
            self._awaited_call = self._num_calls + 1
            yield

    def count(self) -> None:
        """Count a collective in which all ranks took part."""
        self._num_calls += 1

    def leave(self, timeout_s: float) -> None:
        """Say good-bye, and stay for up to ``timeout_s`` until all have, unless somebody is dead."""
        if self._is_closed:
            return
        self._is_closed = True
        self._raised.set()
        self._stop.set()
        os.eventfd_write(self._bell, 1)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
            if self._verdict is None:
                self._say_good_bye(time.monotonic() + timeout_s)
        if not self._thread.is_alive():
            for descriptor in (*self._processes.values(), self._bell):
                os.close(descriptor)

    def _say_good_bye(self, deadline: float) -> None:
        try:
            self._store.set(self._beats[self._rank], last_beat(self._num_calls))
            while time.monotonic() < deadline and not self._are_all_leaving():
                time.sleep(0.02)
        except RuntimeError:
            pass  # the store has left before us, and with it everybody's interest in our beat

    def _are_all_leaving(self) -> bool:
        *beats, verdict = self._store.multi_get([*self._beats, "verdict"])
        return bool(verdict) or all(calls_of_leaver(value) is not None for value in beats)

    def _is_there(self, key: str) -> bool:
        try:
            return self._store.check([key])
        except RuntimeError:
            return True  # the store is gone: no word about this rank

    def _watch_process(self, rank: int, process: ProcessFacts) -> None:
        try:
            self._processes[rank] = process.open()
        except ProcessLookupError:
            return  # ended since it registered: its beat will say so, or the first collective
        self._poll.register(self._processes[rank], select.POLLIN)

    def _run(self) -> None:
        while not self._stop.is_set() and self._verdict is None:
            gone = self._ended_processes(self._config.beat_s)
            if gone:
                time.sleep(_TOGETHER_S)
                gone |= self._ended_processes(0.0)
            try:
                self._round(gone)
            except RuntimeError:
                self._verdict = Verdict(*self._store_host, self._rank)
        if self._verdict is not None and not self._is_closed:
            self._announce(self._verdict)

    def _ended_processes(self, timeout_s: float) -> set[int]:
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout_s * 1e3)}
        gone = {rank for rank, descriptor in self._processes.items() if descriptor in ready}
        for rank in gone:
            self._poll.unregister(self._processes[rank])
            os.close(self._processes.pop(rank))
        return gone

    def _round(self, gone: set[int]) -> None:
        """Beat, look at all others, and agree on a verdict if there is cause for one."""
        self._count += 1
        self._store.set(self._beats[self._rank], beat(self._count))
        *beats, known = self._store.multi_get([*self._beats, "verdict"])
        if not known:
            found = self._judge(beats, gone)
            known = self._store.compare_set("verdict", "", found.to_text()) if found else b""
        if known:
            self._verdict = Verdict.from_text(known)

    def _judge(self, beats: list[bytes], gone: set[int]) -> Verdict | None:
        ended = tuple(sorted(rank for rank in gone if calls_of_leaver(beats[rank]) is None))
        silent = self._watch.look(beats)
        missed = self._leavers.look(beats, self._awaited_call)
        if ended:
            return Verdict(ended, f"{named(ended)} died: the process is gone", self._rank)
        if silent:
            why = f"{named(silent)} died: no sign of life for {self._config.silent_s:g} s"
            return Verdict(silent, why, self._rank)
        if missed:
            return Verdict(missed, f"{named(missed)} left before a collective that others wait in", self._rank)
        return None

    def _announce(self, verdict: Verdict) -> None:
        self._known.set()
        self._on_verdict()
        if not self._raised.wait(self._config.grace_s):
            self._on_dead(verdict)
