"""Ranks of the production runtime on simulated engines, fed by a workload under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidegate.base import LayerSpec, OutOfPages, VirtualClock
from tidegate.engine.simulated import CostModel, SimulatedEngine
from tidegate.request import Request, RequestOutput
from tidegate.runtime import InlineWorker, Parts, RuntimeConfig
from tidegate.runtime.group import LocalExchange, RankGroup, build_group
from tidegate.scheduling import BalancePolicy
from tidegate.sim.drawing import ContentDrawer
from tidegate.sim.pacing import Pacer
from tidegate.sim.recording import PageHistory, StepHistory
from tidegate.sim.served import Served
from tidegate.workload import VOCAB_SIZE, Feed, Workload, WorkloadRequest

_PATIENCE = 8
"""Steps in a row that may bring nothing before the fleet counts as stalled: routing takes one or two."""


class Fleet:
    """``num_ranks`` ranks in step. Queues, plans, pages and balance are the runtime's own; only engines are simulated.

    ``policy`` balances instead of the one that the settings name. ``on_step(fleet)`` is called after every step of the
    group.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        config: RuntimeConfig,
        cost: CostModel,
        *,
        num_ranks: int = 1,
        policy: BalancePolicy[Any] | None = None,
        on_step: Callable[[Fleet], None] = lambda _: None,
    ) -> None:
        self.clock = VirtualClock()
        self.num_ranks = num_ranks
        self._keys: dict[str, int] = {}
        self._pacer = Pacer(cost, self.clock, overlap=config.loop.overlap)
        rows = config.scheduler.max_batch_size + 1
        make = partial(Parts, worker=InlineWorker(), with_memory=False)
        self.group: RankGroup = build_group(
            [SimulatedEngine(layers, vocab_size=VOCAB_SIZE) for _ in range(num_ranks)],
            LocalExchange(num_ranks),
            config,
            clock=self.clock,
            pace=self._pacer,
            policy=policy,
            parts=[make(drawer=ContentDrawer(rows, self._keys)) for _ in range(num_ranks)],
        )
        self._pacer.ranks = self.group.ranks
        self._keeps_pages = config.loop.deferral == "hold"
        self._on_step = on_step
        self.steps = StepHistory(num_ranks)
        self.pages = PageHistory(self.group.ranks)
        self.served = Served()
        self.held_page_s = 0.0
        """Pages that deferred prefills have kept, times seconds."""

    def run(self, workload: Workload, on_finish: Callable[[], None] = lambda: None) -> None:
        """Serve a whole workload. Raises ``OutOfPages`` when something waits that can never go on."""
        feed, idle = Feed(workload), 0
        while True:
            for request, since in feed.due(self.clock.now()):
                self._submit(request, since)
            if not self.group.has_work:
                due = feed.next_s
                if due is None:
                    break
                self._wait_until(due)
                continue
            outputs = self._step()
            for output in outputs:
                feed.ended(output.request_id, self.clock.now())
                on_finish()
            is_moving = bool(outputs) or (self.group.last is not None and self.group.last.is_run)
            idle = 0 if is_moving else idle + 1
            if idle > _PATIENCE:
                self._skip_ahead(feed)
                idle = 0
        self.group.close()

    def _submit(self, asked: WorkloadRequest, since: float) -> None:
        self._keys[asked.request_id] = asked.output_key
        self.served.enter(asked, since)
        self.group.submit(
            Request(
                request_id=asked.request_id,
                prompt=asked.prompt.tokens(),
                max_tokens=asked.num_output_tokens,
                min_tokens=asked.num_output_tokens,
                ignore_eos=True,
                priority=asked.priority,
                arrival_s=since,
                declared=asked.declared,
                conversation_id=asked.conversation_id,
            )
        )

    def _step(self) -> list[RequestOutput]:
        before = self.group.last
        deltas = self.group.step()
        step, now = self.group.last, self.clock.now()
        if step is not None and step is not before:
            self._note(step.routed, now)
        outputs = [delta.output for delta in deltas if delta.output is not None]
        for output in outputs:
            self.served.leave(output)
            del self._keys[output.request_id]
        self._on_step(self)
        return outputs

    def _note(self, routed: Sequence[tuple[str, int]], now: float) -> None:
        step, time = self.group.last, self._pacer.last
        for request_id, rank in routed:
            self.served.seat(request_id, rank, now)
        if step is None or time is None or not step.is_run:
            return
        self.steps.add(step, time, now)
        self.pages.offer(now)
        if self._keeps_pages:
            kept = sum(sum(rank.manager.statistics().reserved) for rank in self.group.ranks)
            self.held_page_s += kept * time.total_s

    def _wait_until(self, due: float) -> None:
        self.clock.advance(max(due - self.clock.now(), 0.0))

    def _skip_ahead(self, feed: Feed) -> None:
        """Nothing runs: go to the next arrival or the next time somebody wants to look again."""
        timers = [rank.session.timer_s for rank in self.group.ranks if rank.session.timer_s is not None]
        times = [time for time in (feed.next_s, *timers) if time is not None]
        if times:
            self._wait_until(min(times))
            return
        stalls = [str(rank.session.stall) for rank in self.group.ranks if rank.session.stall is not None]
        raise OutOfPages(
            f"nothing can go on after {self.clock.now():.3f} s: {'; '.join(stalls) or 'no rank takes what waits'}"
        )
