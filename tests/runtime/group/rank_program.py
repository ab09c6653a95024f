"""A rank for tests: joins its group, does what its first argument names, and leaves.

``python -m tests.runtime.group.rank_program ACTION [ARGUMENT]``; what tests look at is printed, one line per fact.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time

import numpy as np

from tests.runtime.group.transcript import hear
from tidegate.base import RankError
from tidegate.runtime.group import EXIT_RANK_DIED, GroupEnvironment, LivenessConfig
from tidegate.runtime.group.distributed import DistributedExchange

TIMES = {
    "freeze": LivenessConfig(beat_s=0.1, silent_s=1.5, grace_s=1.0),
    "rest": LivenessConfig(beat_s=0.1, silent_s=2.0, grace_s=1.0),
}
PATIENT = LivenessConfig(beat_s=0.1, silent_s=8.0, grace_s=1.0)
"""For what must not hang on how busy the machine is."""

VICTIM_TURN = 20
LONG_S = 60.0


def say(line: str) -> None:
    """Print in one write, so that lines of several ranks do not mix."""
    os.write(1, f"{line}\n".encode())


def gather(exchange: DistributedExchange) -> None:
    """Exchange the ranks' numbers, and check them."""
    (rank,) = exchange.local
    assert exchange.gather(np.full((1, 4), rank)).tolist() == [[r] * 4 for r in range(exchange.size)]


def talk(exchange: DistributedExchange, argument: str) -> None:
    """Go through the transcript; say its digest."""
    digest = hashlib.sha256()
    for kind, heard in hear(exchange, seed=int(argument)):
        if kind != "collect":
            digest.update(kind.encode() + heard)
    say(f"heard {digest.hexdigest()}")


def rest(exchange: DistributedExchange, _: str) -> None:
    """Sleep in each way that ends well; then be slow for longer than a silent rank may live."""
    (rank,) = exchange.local
    gather(exchange)
    results = [exchange.sleep(0.05)]
    gather(exchange)
    if rank == 0:
        threading.Timer(0.3, exchange.wake).start()
    results.append(exchange.sleep(LONG_S))
    gather(exchange)
    if rank == 0:
        exchange.wake()  # before its own sleep, and maybe before the others'
    results.append(exchange.sleep(LONG_S))
    gather(exchange)
    if rank == 0:
        exchange.wake()  # and it does not sleep at all, so that the next sleep is over at once, too
    else:
        results.append(exchange.sleep(LONG_S))
    gather(exchange)
    results.append(exchange.sleep(LONG_S))
    gather(exchange)
    results.append(exchange.sleep(0.05))
    if rank == 1:
        time.sleep(1.5 * TIMES["rest"].silent_s)
    gather(exchange)
    say(f"rested {results}")


def die(exchange: DistributedExchange, victims: str) -> None:
    """Gather for ever, but the victims kill themselves in the middle."""
    for turn in range(1_000_000):
        if turn == VICTIM_TURN and str(exchange.local[0]) in victims:
            os.kill(os.getpid(), signal.SIGKILL)
        gather(exchange)


def die_while_idle(exchange: DistributedExchange, victim: str) -> None:
    """Sleep, but the victim kills itself meanwhile."""
    gather(exchange)
    if str(exchange.local[0]) == victim:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    exchange.sleep(LONG_S)


def freeze(exchange: DistributedExchange, victim: str) -> None:
    """Gather for ever, but the victim stops without ending."""
    for turn in range(1_000_000):
        if turn == VICTIM_TURN and str(exchange.local[0]) == victim:
            os.kill(os.getpid(), signal.SIGSTOP)
        gather(exchange)


def compute(exchange: DistributedExchange, victim: str) -> None:
    """Compute for long, but the victim dies: nobody asks the exchange any more."""
    gather(exchange)
    if str(exchange.local[0]) == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(LONG_S)


def leave_early(exchange: DistributedExchange, leaver: str) -> None:
    """Gather for ever, but one rank is through."""
    for turn in range(1_000_000):
        if turn == VICTIM_TURN and str(exchange.local[0]) == leaver:
            return
        gather(exchange)


def leave_in_turn(exchange: DistributedExchange, _: str) -> None:
    """Gather once; rank 0 is through at once, the others a little later."""
    gather(exchange)
    if exchange.local != (0,):
        time.sleep(3 * PATIENT.beat_s)


def never_join(_: DistributedExchange, __: str) -> None:
    """Be unreachable: somebody did not come."""


ACTIONS = {
    action.__name__: action
    for action in (talk, rest, die, die_while_idle, freeze, compute, leave_early, leave_in_turn, never_join)
}


def main(arguments: list[str]) -> int:
    """Join, act, leave; a rank that learns of a death names it on stderr."""
    action, argument = arguments
    environment = GroupEnvironment.read(os.environ)
    if action == "never_join" and str(environment.rank) == argument:
        return 0
    try:
        join_s = 1.0 if action == "never_join" else LONG_S
        exchange = DistributedExchange(environment, liveness=TIMES.get(action, PATIENT), join_s=join_s)
        try:
            ACTIONS[action](exchange, argument)
        finally:
            exchange.close()
    except RankError as error:
        os.write(2, f"rank {environment.rank}: {error} {error.evidence['ranks']}\n".encode())
        return EXIT_RANK_DIED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
