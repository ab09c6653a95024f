"""The simulator's page counts are those of the runtime on an engine that checks every page, after every step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.loads import LAYERS, TokenCost, config, conversations, single_turns
from tidegate.base import VirtualClock
from tidegate.request import Request
from tidegate.runtime import Parts, RuntimeConfig
from tidegate.runtime.group import LocalExchange, Rank, RankGroup, build_group
from tidegate.sim import Fleet
from tidegate.sim.drawing import ContentDrawer
from tidegate.sim.pacing import Pacer
from tidegate.testing.layouts import full, stacked, state, window
from tidegate.testing.serving import ForgettingEngine
from tidegate.workload import VOCAB_SIZE, Feed, Workload

Counts = list[tuple[Any, ...]]


class WideEngine(ForgettingEngine):
    """Takes all tokens of made-up content; what it would draw is not asked for."""

    @property
    def vocab_size(self) -> int:
        return VOCAB_SIZE


def counts(ranks: list[Rank] | Any) -> Counts:
    """Pages of every group and pool of every rank."""
    statistics = [rank.manager.statistics() for rank in ranks]
    return [
        (
            [(pool.free, pool.evictable, pool.in_use) for pool in s.pools],
            [(group.owned, group.scratch) for group in s.groups],
            s.hit_tokens,
            s.suspended,
        )
        for s in statistics
    ]


def simulated(workload: Workload, settings: RuntimeConfig, num_ranks: int, layers: Any) -> list[Counts]:
    seen: list[Counts] = []
    fleet = Fleet(
        layers,
        settings,
        TokenCost(),
        num_ranks=num_ranks,
        on_step=lambda fleet: seen.append(counts(fleet.group.ranks)),
    )
    fleet.run(workload)
    return seen


def real(workload: Workload, settings: RuntimeConfig, num_ranks: int, layers: Any) -> list[Counts]:
    """Drive the runtime with pages, and with the thread that runs the engine where steps overlap."""
    clock = VirtualClock()
    texts = {request.request_id: request.output_key for request in workload.requests}
    pacer = Pacer(TokenCost(), clock, overlap=settings.loop.overlap)
    group: RankGroup = build_group(
        [WideEngine(layers, vocab_size=2) for _ in range(num_ranks)],
        LocalExchange(num_ranks),
        settings,
        clock=clock,
        pace=pacer,
        parts=[Parts(drawer=ContentDrawer(settings.scheduler.max_batch_size + 1, texts)) for _ in range(num_ranks)],
    )
    pacer.ranks = group.ranks
    feed, seen = Feed(workload), list[Counts]()
    while feed.num_left or group.has_work:
        for request, since in feed.due(clock.now()):
            group.submit(
                Request(
                    request_id=request.request_id,
                    prompt=request.prompt.tokens(),
                    max_tokens=request.num_output_tokens,
                    min_tokens=request.num_output_tokens,
                    ignore_eos=True,
                    arrival_s=since,
                    conversation_id=request.conversation_id,
                )
            )
        if not group.has_work:
            assert feed.next_s is not None
            clock.advance(feed.next_s - clock.now())
            continue
        for delta in group.step():
            if delta.output is not None:
                feed.ended(delta.request_id, clock.now())
        for rank in group.ranks:
            rank.manager.audit()
        seen.append(counts(group.ranks))
    group.close()
    return seen


LOADS = {
    "single turns": single_turns(24),
    "spread arrivals": single_turns(24, every_s=0.004),
    "conversations": conversations(6, 4),
}
MODELS = {"full and window": LAYERS, "state": stacked(full(), state(), window(4))}
WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "overlap": {"overlap": True},
    "hold": {"deferral": "hold", "attention_dp_config": {"enable_balance": True, "timeout_iters": 4}},
    "tight": {"device_bytes": 11_000},
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_pages_are_equal_step_by_step(load: str, way: str, model: str) -> None:
    settings = config(**WAYS[way])
    workload, layers = LOADS[load], MODELS[model]
    seen = simulated(workload, settings, 2, layers)
    assert seen == real(workload, settings, 2, layers)
    assert len(seen) > 20
    if load == "conversations":
        assert seen[-1][0][2] + seen[-1][1][2] > 0  # what earlier turns left was found again


def test_tight_loads_suspend() -> None:
    seen = simulated(LOADS["single turns"], config(**WAYS["tight"]), 2, LAYERS)
    assert sum(rank[3] for rank in seen[-1]) > 0
