"""What idle ranks cost: ``python -m benchmarks.idle_ranks [--ranks 8] [--seconds 30]``.

Prints the processor time of all sleeping ranks and of the launcher, which runs the store, as a share of one core, and
how long after rank 0's wake-up the last rank was awake.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tidegate.runtime.group import GroupEnvironment
from tidegate.runtime.group.distributed import DistributedExchange
from tidegate.runtime.group.launch import run_ranks

_USER_TICKS = 11
_SLACK_S = 60.0


def _launcher_s() -> float:
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_USER_TICKS : _USER_TICKS + 2])) / os.sysconf("SC_CLK_TCK")


def measure(exchange: DistributedExchange, seconds: float) -> None:
    """Sleep until rank 0 wakes all, and let it print the figures."""
    exchange.gather(np.zeros((1, 3), np.int64))
    begin, used_s, launcher_s = time.monotonic_ns(), time.process_time(), _launcher_s()
    called_ns = [0]
    if exchange.local == (0,):

        def wake() -> None:
            called_ns[0] = time.monotonic_ns()
            exchange.wake()

        threading.Timer(seconds, wake).start()
    is_woken = exchange.sleep(seconds + _SLACK_S)
    awake_ns = time.monotonic_ns()
    used_us = int((time.process_time() - used_s) * 1e6)
    launcher_s = _launcher_s() - launcher_s
    rows = exchange.gather(np.array([[used_us, awake_ns, int(is_woken)]], np.int64))
    if exchange.local != (0,):
        return
    slept_s = (awake_ns - begin) / 1e9
    ranks_s = rows[:, 0].sum() / 1e6
    late_ms = (rows[:, 1].max() - called_ns[0]) / 1e6
    print(f"{exchange.size} ranks idle for {slept_s:.1f} s, {rows[:, 2].sum()} woken by rank 0")
    print(f"ranks {100 * ranks_s / slept_s:.2f} %, launcher {100 * launcher_s / slept_s:.2f} % of one core, in sum")
    print(f"last rank awake {late_ms:.1f} ms after the wake-up", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a process that finds itself to be a rank sleeps as such."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_ranks", description="Measure idle ranks.")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        exchange = DistributedExchange(GroupEnvironment.read(os.environ))
        try:
            measure(exchange, options.seconds)
        finally:
            exchange.close()
        return 0
    repeated = ["--ranks", str(options.ranks), "--seconds", str(options.seconds)]
    return run_ranks(options.ranks, [sys.executable, "-m", "benchmarks.idle_ranks", *repeated]).exit_code


if __name__ == "__main__":
    sys.exit(main())
