"""One rank: a scheduler, a cache and an engine that take their steps together with others."""

from __future__ import annotations

from tidegate.base import CapacityError, Clock, ConfigError, Int64Array, InternalError
from tidegate.cache import KVCacheManager
from tidegate.request import FinishReason, Request, TokenDelta
from tidegate.runtime.group.announcing import MICROSECONDS, LastStep, plan_row
from tidegate.runtime.session import Session
from tidegate.runtime.step import StepLoop
from tidegate.scheduling import Decision, Plan, RankLoad, Scheduler, output_of_unstarted, reuse_scope


class Rank:
    """A step is ``propose``, the exchange, ``restrict`` and ``conclude``; ``abandon`` ends it after ``propose``."""

    def __init__(
        self,
        session: Session,
        scheduler: Scheduler,
        loop: StepLoop,
        manager: KVCacheManager,
        *,
        clock: Clock,
    ) -> None:
        self.session = session
        self.manager = manager
        self.scheduler = scheduler
        self._loop = loop
        self._clock = clock
        self._plan: Plan | None = None
        self._last = LastStep()
        self._refused: list[TokenDelta] = []
        self.num_padding_steps = 0

    @property
    def plan(self) -> Plan | None:
        """The plan between ``propose`` and ``conclude``."""
        return self._plan

    @property
    def in_flight(self) -> bool:
        """Whether a step was launched and has not ended."""
        return self._loop.in_flight

    @property
    def num_held(self) -> int:
        """First chunks of the current plan that are held back."""
        return 0 if self._plan is None else len(self._plan.held)

    @property
    def has_work(self) -> bool:
        """Whether anything waits, runs, is in flight, or was not handed out yet."""
        return bool(self._refused) or self.session.has_work

    def load(self) -> RankLoad:
        """Return what waits and runs here."""
        return self.scheduler.load()

    def match(self, request: Request) -> int:
        """Return how many tokens of a request's prompt this rank's cache holds."""
        return 0 if request.access == "none" else self.manager.probe(request.prompt, reuse_scope(request)).reused

    def movable(self, most: int) -> list[Request]:
        """Return waiting requests, in order, that own nothing, never ran and are not in the proposed plan."""
        planned = {entry.waiting.request.request_id for entry in self._proposed().admissions}
        return [
            request for request in self.scheduler.unstarted(most + len(planned)) if request.request_id not in planned
        ]

    def submit(self, request: Request, *, stream: bool) -> None:
        """Queue a request that was routed here; one that this rank cannot serve ends with reason ``error``.

        Nothing is raised for it: what only one rank sees must not keep it from the next step.
        """
        try:
            self.session.submit(request, stream=stream)
        except (ConfigError, CapacityError) as error:
            facts = f"{type(error).__name__}: {error}"
            output = output_of_unstarted(request, FinishReason.ERROR, now=self._clock.now(), error=facts)
            self._refused.append(TokenDelta(request_id=request.request_id, tokens=output.tokens, output=output))

    def propose(self) -> Int64Array:
        """Plan the next step and return the row that tells the others of it."""
        self.session.expire()
        load = self.scheduler.load()  # first: policies that reserve while they plan move cursors
        plan = self._plan = self._loop.propose()
        return plan_row(plan, load, self._last, now=self._clock.now(), has_work=self.has_work)

    def restrict(self, decision: Decision) -> int:
        """Let the decision take away what it holds; return the tokens that this rank will compute."""
        plan = self._plan = self._loop.restrict(self._proposed(), decision)
        return plan.num_tokens

    def conclude(self, *, runs: bool, began_s: float) -> list[TokenDelta]:
        """Carry the plan out, with a padding entry when others run and it computes nothing; return what is new.

        ``began_s`` is when the group began to run the step.
        """
        plan, self._plan = self._proposed(), None
        report = self._loop.conclude(plan, must_compute=runs)
        self.num_padding_steps += runs and plan.num_sequences == 0
        step_us = int((self._clock.now() - began_s) * MICROSECONDS)
        self._last = LastStep(plan.num_tokens, step_us, len(report.outcome.finished))
        refused, self._refused = self._refused, []
        return refused + self.session.absorb(report)

    def abandon(self) -> None:
        """Give up a proposed plan, if there is one: nothing of it is carried out."""
        if self._plan is not None:
            self._plan = None
            self._loop.abandon()

    def release_kept(self) -> None:
        """Give back the pages that prefills which were held back have kept."""
        self._loop.release()

    def close(self) -> None:
        """Abort what is left and stop."""
        self.abandon()
        self.session.close()

    def _proposed(self) -> Plan:
        if self._plan is None:
            raise InternalError("no plan was proposed for this step")
        return self._plan
