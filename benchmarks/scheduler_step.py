"""P2: a whole scheduler step of running decodes, one rank: plan, exchange, filter, reserve, apply; no engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.sequences import BLOCK, VOCABULARY, bookkeeping, hybrid_layers, prompts
from benchmarks.timing import time_calls
from tidegate.base import Int64Array
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.request import Request
from tidegate.runtime.group import LastStep, LocalExchange, plan_row
from tidegate.scheduling import AttentionDPConfig, Balancer, ModelLimits, Scheduler, SchedulerConfig, balance_of

LIMIT = 250.0
_LAST = LastStep(num_tokens=256, step_us=10_000)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    sequences: int = 256
    context: int = 1024
    steps: int = 128


@dataclass(slots=True)
class Loop:
    """What a step goes through, with the engine's part left out."""

    scheduler: Scheduler
    manager: KVCacheManager
    exchange: LocalExchange = field(default_factory=lambda: LocalExchange(1))
    balancer: Balancer[Any] = field(default_factory=lambda: balance_of(AttentionDPConfig(), 4096))
    state: Any = None

    def balance(self) -> None:
        """Balance from now on."""
        self.balancer = balance_of(AttentionDPConfig(enable_balance=True), 4096)
        self.state = self.balancer.start()

    def step(self, tokens: Int64Array) -> None:
        """Plan, tell, decide, reserve, dispatch, start and apply."""
        plan = self.scheduler.plan()
        row = plan_row(plan, self.scheduler.load(), _LAST, now=0.0, has_work=True)
        rows = self.exchange.gather(row[None])
        self.state, decision = self.balancer.decide(self.state, rows)
        plan = self.scheduler.restrict(plan, decision)
        self.scheduler.note(plan)
        with self.manager.reserve(plan.quote) as reservation:
            reservation.dispatch()
            step = self.scheduler.start(plan, reservation, now=0.0)
            reservation.keep()
        self.scheduler.apply(step, tokens[: len(step.rows)], now=0.0)


def cases(sizes: Sizes | None = None) -> list[Case]:
    """Return the one case of this bar."""
    sizes = sizes or Sizes()
    vllm = PeerCall.of("vllm-scheduler", "step", steps=sizes.steps, block=BLOCK, nreq=sizes.sequences)
    return [
        Case(
            bar="P2",
            what=f"scheduler step of {sizes.sequences} running decodes",
            unit="µs",
            limit=LIMIT,
            sample=lambda: sample(sizes),
            name="scheduler_step",
            keys={"kind": "hybrid", "block": BLOCK, "nreq": sizes.sequences, "ctx": sizes.context},
            versus=(Versus((vllm,), ("schedule_plus_update_256",), 12.0),),
        )
    ]


def sample(sizes: Sizes) -> list[float]:
    """Time ``steps`` steps in microseconds."""
    loop = start(sizes)
    rng = np.random.default_rng(7)
    return time_calls(lambda _: rng.integers(0, VOCABULARY, sizes.sequences), loop.step, sizes.steps)


def start(sizes: Sizes) -> Loop:
    """Bring the requests through their prompts, several in each step."""
    longest = sizes.context + sizes.steps + 3 * BLOCK
    config = KVCacheConfig(
        layers=hybrid_layers(),
        max_sequences=sizes.sequences,
        max_seq_len=longest,
        pool_slots=(2 * sizes.sequences * (longest // BLOCK + 16),),
    )
    manager = bookkeeping(config)
    limits = SchedulerConfig(
        max_num_tokens=max(8192, sizes.sequences), max_batch_size=sizes.sequences, max_partial_prefills=8
    )
    scheduler = Scheduler(manager, limits, ModelLimits(vocab_size=VOCABULARY))
    for i, tokens in enumerate(prompts([sizes.context + i % BLOCK for i in range(sizes.sequences)], seed=1)):
        request = Request(request_id=str(i), prompt=tokens, max_tokens=sizes.steps + BLOCK, ignore_eos=True)
        scheduler.submit(request, now=0.0)
    loop = Loop(scheduler, manager)
    first_tokens = np.full(sizes.sequences, 7, np.int64)
    while len(scheduler.plan().decodes) < sizes.sequences:
        loop.step(first_tokens)
    loop.balance()
    return loop
