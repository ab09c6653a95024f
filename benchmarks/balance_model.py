"""Fleet model of attention-DP balance: real policies decide on rank rows, a step lasts as long as its busiest rank.

Run ``python -m benchmarks.balance_model``. A step takes 30 ms plus 0.1 ms per token of the busiest rank. A fixed number
of requests is kept in the fleet; the rank where one ends gets the next. Time to the first token counts from the moment
the rank has a free seat for the request.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.base import Int64Array
from tidegate.scheduling import (
    WIDTH,
    BalanceMeter,
    Balancer,
    Column,
    CostAwareWait,
    Decision,
    FixedWait,
    NoBalance,
)

FIXED_US, TOKEN_US, BLOCK = 30_000, 100, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the fleet is asked to do; lengths are gamma-distributed with the given means and shapes."""

    num_requests: int = 16_000
    concurrency: int = 4_096
    num_ranks: int = 8
    num_seats: int = 512
    max_num_tokens: int = 8_192
    mean_prompt: int = 803
    prompt_shape: float = 2.0
    mean_output: int = 3_653
    output_shape: float = 2.0
    seed: int = 0

    def lengths(self) -> tuple[list[int], list[int]]:
        """Draw prompt and output lengths of every request."""
        rng = np.random.default_rng(self.seed)
        drawn = [
            np.maximum(rng.gamma(shape, mean / shape, self.num_requests), 1).astype(np.int64).tolist()
            for mean, shape in ((self.mean_prompt, self.prompt_shape), (self.mean_output, self.output_shape))
        ]
        return drawn[0], drawn[1]


@dataclass(slots=True)
class _Prefill:
    left: int
    output: int
    since_us: int
    started: bool = False
    held: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output tokens per second, mean time to the first token in seconds, and both ratios of ``BalanceMeter``."""

    tokens_per_s: float
    mean_ttft_s: float
    balance_ratio: float
    balance_by_time: float


@dataclass(slots=True)
class _Fleet:
    load: Load
    now_us: int = 0
    step: int = 0
    last_us: int = 0
    ttft_us: int = 0
    queues: list[deque[_Prefill]] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    ending: dict[int, list[int]] = field(default_factory=dict)

    def rows(self, plans: list[list[int]]) -> Int64Array:
        """Announce what each rank plans."""
        rows = np.zeros((self.load.num_ranks, WIDTH), dtype=np.int64)
        for rank, plan in enumerate(plans):
            queue = self.queues[rank]
            waiting = [entry for entry in queue if not entry.started]
            first = sum(not queue[i].started for i in range(len(plan)))
            held = max((queue[i].held for i in range(len(plan))), default=0)
            oldest = self.now_us - waiting[0].since_us if waiting else 0
            rows[rank, : Column.HAS_WORK + 1] = (
                len(plan),
                first,
                self.decodes[rank],
                0,
                sum(plan),
                self.decodes[rank],
                sum(entry.left for entry in queue),
                len(waiting),
                oldest,
                self.finished[rank],
                self.load.num_seats - self.decodes[rank] - len(queue) + len(waiting),
                self.last_us,
                1,
                held,
                1,
            )
        return rows

    def plan(self, rank: int) -> list[int]:
        """Chunks of the first requests in the queue, within the token budget."""
        left, chunks = self.load.max_num_tokens - self.decodes[rank], []
        for entry in self.queues[rank]:
            chunk = _cut(entry.left, left)
            if chunk == 0:
                break
            chunks.append(chunk)
            left -= chunk
        return chunks

    def restrict(self, rank: int, chunks: list[int], decision: Decision) -> list[int]:
        """Apply a decision as the scheduler does; a chunk of 0 is held."""
        limit = decision.max_tokens
        left = self.load.max_num_tokens if limit is None else max(limit - self.decodes[rank], 0)
        kept = []
        for entry, chunk in zip(self.queues[rank], chunks, strict=False):
            if entry.started:
                size = max(_cut(chunk, left), min(BLOCK, chunk))
            else:
                size = 0 if decision.hold else _cut(chunk, left)
            kept.append(size)
            left = max(left - size, 0)
        return kept

    def run(self, plans: list[list[int]], fresh: Callable[[], tuple[int, int] | None]) -> list[int]:
        """Compute a step and return tokens per rank."""
        tokens = [decodes + sum(plan) for decodes, plan in zip(self.decodes, plans, strict=True)]
        self.last_us = FIXED_US + TOKEN_US * max(tokens)
        self.now_us += self.last_us
        self.step += 1
        for rank, plan in enumerate(plans):
            queue = self.queues[rank]
            for entry, chunk in zip(queue, plan, strict=False):
                entry.left -= chunk
                entry.started |= chunk > 0
                entry.held += chunk == 0
            while queue and queue[0].left == 0:
                self._begin(rank, queue.popleft())
        self.finished = self.ending.pop(self.step, [0] * self.load.num_ranks)
        for rank, count in enumerate(self.finished):
            self.decodes[rank] -= count
            for _ in range(count):
                self.seat(rank, fresh())
        return tokens

    def seat(self, rank: int, lengths: tuple[int, int] | None) -> None:
        """Give a rank the next request, if there is one."""
        if lengths is not None:
            self.queues[rank].append(_Prefill(*lengths, since_us=self.now_us))

    def _begin(self, rank: int, entry: _Prefill) -> None:
        self.ttft_us += self.now_us - entry.since_us
        self.decodes[rank] += 1
        ends = self.step + entry.output
        self.ending.setdefault(ends, [0] * self.load.num_ranks)[rank] += 1


def _cut(chunk: int, left: int) -> int:
    return chunk if chunk <= left else left // BLOCK * BLOCK


def run(load: Load, balancer: Balancer[Any]) -> Outcome:
    """Serve the whole load under a policy."""
    prompts, outputs = load.lengths()
    pending = iter(zip(prompts, outputs, strict=True))
    ranks = range(load.num_ranks)
    fleet = _Fleet(load, queues=[deque() for _ in ranks], decodes=[0 for _ in ranks], finished=[0 for _ in ranks])
    for i in range(min(load.concurrency, load.num_requests)):
        fleet.seat(i % load.num_ranks, next(pending))
    state, meter = balancer.start(), BalanceMeter()
    while any(fleet.decodes) or any(fleet.queues):
        plans = [fleet.plan(rank) for rank in ranks]
        state, decision = balancer.decide(state, fleet.rows(plans))
        plans = [fleet.restrict(rank, plan, decision) for rank, plan in enumerate(plans)]
        tokens = fleet.run(plans, lambda: next(pending, None))
        meter.add(np.array(tokens), fleet.last_us / 1e6)
    return Outcome(
        tokens_per_s=sum(outputs) / fleet.now_us * 1e6,
        mean_ttft_s=fleet.ttft_us / load.num_requests / 1e6,
        balance_ratio=meter.ratio,
        balance_by_time=meter.ratio_by_time,
    )


LOADS = {
    "saturated": Load(),
    "1024": Load(num_requests=8_000, concurrency=1_024),
    "256": Load(num_requests=2_000, concurrency=256),
    "32": Load(num_requests=300, concurrency=32),
    "long prompts": Load(num_requests=12_000, concurrency=1_024, mean_prompt=4_000, mean_output=500),
    "short": Load(num_requests=40_000, mean_prompt=200, mean_output=300),
    "heavy tails": Load(num_requests=12_000, mean_prompt=2_000, prompt_shape=0.3, mean_output=2_000, output_shape=0.7),
}


def policies(num_seats: int) -> dict[str, Balancer[Any]]:
    """Name the policies to compare."""
    fixed = {
        f"FixedWait({wait},{batch})": Balancer(FixedWait(num_seats, wait, batch), wait + batch)
        for wait, batch in ((50, 0), (50, 10), (50, 40))
    }
    cost_aware = CostAwareWait()
    return {
        "no hold": Balancer(NoBalance(), 0),
        **fixed,
        "CostAwareWait": Balancer(cost_aware, cost_aware.max_hold_iters),
    }


def main() -> None:
    """Print one table per load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", default=["saturated"], help=f"of {list(LOADS)}, or 'all'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the requests, for a quick look")
    options = parser.parse_args()
    for name in LOADS if options.loads == ["all"] else options.loads:
        load = replace(LOADS[name], seed=options.seed, num_requests=int(LOADS[name].num_requests * options.share))
        print(f"{name}: {load}")
        base = None
        for policy, balancer in policies(load.num_seats).items():
            outcome = run(load, balancer)
            base = base or outcome.tokens_per_s
            print(
                f"  {policy:18}{outcome.tokens_per_s:9,.0f} tok/s {outcome.tokens_per_s / base:6.3f}x"
                f"{outcome.mean_ttft_s:9.2f} s to first token   balance {outcome.balance_ratio:.3f}"
                f" (by time {outcome.balance_by_time:.3f})"
            )


if __name__ == "__main__":
    main()
