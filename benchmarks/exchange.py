"""What an exchange costs: ``python -m benchmarks.exchange [--ranks 8] [--gathers 200]``.

Prints the median of ``LocalExchange.gather``, and, over processes of this machine, of ``DistributedExchange.gather``
beside a bare all-gather of the same size into preallocated tensors, in turn in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.timing import time_calls
from tidegate.runtime.group import GroupEnvironment, LocalExchange
from tidegate.runtime.group.distributed import DistributedExchange
from tidegate.runtime.group.launch import run_ranks
from tidegate.scheduling.balance import WIDTH

_WARM_UP = 20


def local_gather(num_ranks: int, count: int) -> list[float]:
    """Time gathers within one process, in microseconds."""
    exchange = LocalExchange(num_ranks)
    rows = np.zeros((num_ranks, WIDTH), np.int64)
    return time_calls(lambda _: rows, exchange.gather, count)


def distributed_gather(exchange: DistributedExchange, count: int) -> tuple[list[float], list[float]]:
    """Time gathers over processes and bare collectives in turn, in microseconds: ours, bare."""
    row = np.zeros((1, WIDTH), np.int64)
    own, everyone = torch.zeros(WIDTH, dtype=torch.int64), torch.zeros(exchange.size * WIDTH, dtype=torch.int64)
    ours, bare = [], []
    for _ in range(_WARM_UP + count):
        begin = perf_counter_ns()
        exchange.gather(row)
        middle = perf_counter_ns()
        dist.all_gather_single(everyone, own)
        end = perf_counter_ns()
        ours.append((middle - begin) / 1e3)
        bare.append((end - middle) / 1e3)
    return ours[_WARM_UP:], bare[_WARM_UP:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a process that finds itself to be a rank measures as such."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange", description="Measure exchanges.")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--gathers", type=int, default=200)
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        exchange = DistributedExchange(GroupEnvironment.read(os.environ))
        try:
            ours, bare = (statistics.median(values) for values in distributed_gather(exchange, options.gathers))
        finally:
            exchange.close()
        if exchange.local == (0,):
            print(f"DistributedExchange.gather, {exchange.size} ranks, width {WIDTH}: median {ours:.0f} µs")
            print(f"bare all-gather in turn with it: median {bare:.0f} µs; ratio {ours / bare:.3f}", flush=True)
        return 0
    local = statistics.median(local_gather(options.ranks, options.gathers))
    print(f"LocalExchange.gather, {options.ranks} ranks, width {WIDTH}: median {local:.2f} µs", flush=True)
    repeated = ["--ranks", str(options.ranks), "--gathers", str(options.gathers)]
    outcome = run_ranks(options.ranks, [sys.executable, "-m", "benchmarks.exchange", *repeated])
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
