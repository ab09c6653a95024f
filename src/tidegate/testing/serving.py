"""Whole runs under a virtual clock, audited after every step: a scheduler alone, and a session on the fake engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.base import LayerSpec, VirtualClock
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.engine import StepInput
from tidegate.request import Request, RequestOutput, SamplingParams, TokenDelta, token_array
from tidegate.runtime import RuntimeConfig, build_manager, build_session
from tidegate.scheduling import ModelLimits, Plan, Scheduler, SchedulerConfig
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.guessed_drafts import GuessedDrafts

GREEDY = SamplingParams(temperature=0.0)
STEP_S = 0.01


def make_request(request_id: str, prompt: Sequence[int] | int, **fields: object) -> Request:
    """Return a greedy request; a number as ``prompt`` means that many tokens of its own."""
    if isinstance(prompt, int):
        own = sum(request_id.encode())
        prompt = [(own * 7 + i * 13) % 29 for i in range(prompt)]
    values = {"sampling": GREEDY, "max_tokens": 4, **fields}
    return Request(request_id=request_id, prompt=token_array(prompt), **values)  # type: ignore[arg-type]  # as given


class PlanningRun:
    """A scheduler over a cache without memory. Its engine always answers with the same token."""

    def __init__(
        self, cache: KVCacheConfig, config: SchedulerConfig, *, vocab_size: int = 1000, token: int = 1
    ) -> None:
        self.manager = KVCacheManager(cache, with_memory=False)
        self.scheduler = Scheduler(self.manager, config, ModelLimits(vocab_size))
        self.clock = VirtualClock()
        self.outputs: dict[str, RequestOutput] = {}
        self.plans: list[Plan] = []
        self._token = token
        self._free = self.manager.quote().supply
        self.least_supply = self._free

    @property
    def supply(self) -> tuple[int, ...]:
        """Pages per pool group that could be had now."""
        return self.manager.quote().supply

    def submit(self, request: Request) -> None:
        """Submit; an output that comes at once is kept."""
        output = self.scheduler.submit(request, now=self.clock.now())
        if output is not None:
            self.outputs[output.request_id] = output

    def step(self) -> Plan:
        """Plan, reserve and apply one step."""
        plan = self.scheduler.plan(now=self.clock.now())
        self.plans.append(plan)
        self.scheduler.note(plan)
        self.clock.advance(STEP_S)
        now = self.clock.now()
        finished: tuple[RequestOutput, ...] = ()
        if plan.exhausted:
            finished = self.scheduler.retire(plan, now=now).finished
        elif not plan.is_idle:
            with self.manager.reserve(plan.quote) as reservation:
                reservation.dispatch()
                self.least_supply = tuple(map(min, self.least_supply, self.supply))
                step = self.scheduler.start(plan, reservation, now=now)
                reservation.keep()
            tokens = np.full(len(step.rows), self._token, dtype=np.int64)
            finished = self.scheduler.apply(step, tokens, now=now).finished
        self.outputs |= {output.request_id: output for output in finished}
        self.manager.audit()
        return plan

    def run(self, max_steps: int = 500) -> dict[str, RequestOutput]:
        """Step until nothing is left; a stall, or not getting there, is an error."""
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                self.check_idle()
                return self.outputs
            plan = self.step()
            if plan.stall is not None:
                raise AssertionError(f"stalled: {plan.stall}")
        raise AssertionError(f"still at work after {max_steps} steps: {self.scheduler.statistics()}")

    def check_idle(self) -> None:
        """Raise unless every page can be had again."""
        if self.supply != self._free:
            raise AssertionError(f"{self.supply} pages can be had of {self._free}")


class ForgettingEngine(FakeEngine):
    """Forgets what it knew of a row that another sequence has taken over, and reads its prefix from the cache."""

    def __init__(self, layers: Sequence[LayerSpec], *, vocab_size: int) -> None:
        super().__init__(layers, vocab_size=vocab_size)
        self._ends: dict[int, int] = {}

    def forward(self, step: StepInput) -> npt.NDArray[np.float32]:
        """Run the step."""
        lengths = np.diff(step.cu_seqlens)
        starts = step.positions[step.cu_seqlens[:-1]]
        for row, start, length in zip(step.rows.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            if self._ends.get(row) != start:
                self.forget(row)
            self._ends[row] = start + length
        return super().forward(step)


class ServingRun:
    """A session on the fake engine. ``settings`` are those of ``RuntimeConfig``.

    With ``wrong_drafts`` the drafts are true but for that many of 16 (``GuessedDrafts``).
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        *,
        vocab_size: int = 31,
        eos_token_ids: tuple[int, ...] = (),
        wrong_drafts: int | None = None,
        **settings: object,
    ) -> None:
        self.engine = ForgettingEngine(layers, vocab_size=vocab_size)
        self.clock = VirtualClock()
        config = RuntimeConfig.from_settings(settings)
        self.manager = build_manager(self.engine, config)
        drafts = None
        if wrong_drafts is not None:
            drafts = GuessedDrafts(self.engine, config.speculation.num_speculative_tokens, wrong_drafts)
        self.session = build_session(
            self.engine, self.manager, config, eos_token_ids=eos_token_ids, clock=self.clock, drafts=drafts
        )
        self.outputs: dict[str, RequestOutput] = {}
        self.deltas: dict[str, list[int]] = {}
        self._free = self.manager.quote().supply

    def submit(self, request: Request, *, stream: bool = False) -> None:
        """Submit a request."""
        self.session.submit(request, stream=stream)

    def step(self) -> list[TokenDelta]:
        """Step once and audit."""
        self.clock.advance(STEP_S)
        deltas = self.session.step()
        self.manager.audit()
        for delta in deltas:
            self.deltas.setdefault(delta.request_id, []).extend(delta.tokens.tolist())
            if delta.output is not None:
                self.outputs[delta.request_id] = delta.output
        if self.session.stall is not None:
            raise AssertionError(f"stalled: {self.session.stall}")
        return deltas

    def run(self, max_steps: int = 1000) -> dict[str, RequestOutput]:
        """Step until nothing is left."""
        for _ in range(max_steps):
            if not self.session.has_work:
                self.check_idle()
                return self.outputs
            self.step()
        raise AssertionError(f"still at work after {max_steps} steps: {self.session.statistics()}")

    def check_idle(self) -> None:
        """Raise unless every page can be had again."""
        supply = self.manager.quote().supply
        if supply != self._free:
            raise AssertionError(f"{supply} pages can be had of {self._free}")

    def expected(self, request: Request) -> list[int]:
        """Return what the request's output must be, computed without any cache."""
        return self.engine.continuation(request.prompt.tolist(), request.max_tokens)
