"""One rank: a scheduler, a cache and an engine that take their steps together with others."""

from __future__ import annotations

from tidegate.base import Clock, Int64Array, InternalError
from tidegate.cache import KVCacheManager, ReuseScope
from tidegate.request import Request, TokenDelta
from tidegate.runtime.session import Session
from tidegate.runtime.step import StepLoop
from tidegate.scheduling import Decision, Plan, RankLoad, Scheduler, rank_row

_US = 1_000_000


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
        self._num_finished = 0
        self._last_step_us = 0
        self._last_tokens = 0
        self.num_padding_steps = 0

    @property
    def plan(self) -> Plan | None:
        """The plan between ``propose`` and ``conclude``."""
        return self._plan

    @property
    def num_held(self) -> int:
        """First chunks of the current plan that are held back."""
        return 0 if self._plan is None else len(self._plan.held)

    @property
    def has_work(self) -> bool:
        """Whether anything waits, runs, is in flight, or was not handed out yet."""
        return self.session.has_work

    def load(self) -> RankLoad:
        """Return what waits and runs here."""
        return self.scheduler.load()

    def match(self, request: Request) -> int:
        """Return how many tokens of a request's prompt this rank's cache holds."""
        scope = ReuseScope(lora_id=request.lora_id, salt=request.salt, lora_version=request.lora_version)
        return 0 if request.access == "none" else self.manager.probe(request.prompt, scope).reused

    def submit(self, request: Request, *, stream: bool) -> None:
        """Queue a request that was routed here."""
        self.session.submit(request, stream=stream)

    def propose(self) -> Int64Array:
        """Plan the next step and return the row that tells the others of it."""
        plan = self._plan = self._loop.propose()
        load = self.scheduler.load()
        oldest = load.oldest_arrival_s
        num_prefills = len(plan.chunks) + len(plan.admissions)
        return rank_row(
            ctx=num_prefills,
            first=sum(entry.is_first for entry in plan.admissions),
            gen_real=len(plan.decodes),
            gen_pad=int(plan.num_sequences == 0),
            ctx_tokens=plan.num_tokens - plan.num_decode_tokens,
            decode_tokens=plan.num_decode_tokens,
            backlog_tokens=load.prefill_tokens,
            waiting=load.waiting,
            oldest_wait_us=0 if oldest is None else max(int((self._clock.now() - oldest) * _US), 0),
            finished=self._num_finished,
            free_seats=load.seats,
            last_step_us=self._last_step_us,
            fits=int(not plan.is_short),
            held_passes=plan.most_held_passes,
            has_work=int(self.has_work),
            active=load.active,
            retiring=load.retiring,
            last_tokens=self._last_tokens,
        )

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
        self._last_step_us = int((self._clock.now() - began_s) * _US)
        self._last_tokens = plan.num_tokens
        self._num_finished = len(report.outcome.finished)
        return self.session.absorb(report)

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
