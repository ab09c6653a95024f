"""One step after the other: plan, reserve, dispatch, compute, keep, apply.

With overlap, step N+1 is planned, priced and reserved while N computes; it is launched when N's tokens are known.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate.base import Clock, EngineError
from tidegate.cache import JointReservation, KVCacheManager, Reservation, StepPages
from tidegate.engine import Engine, StepInput
from tidegate.request import TokenLogprob
from tidegate.runtime.deferral import Deferral, ReserveLate
from tidegate.runtime.drawing import Drawer, Drawn, request_logprobs
from tidegate.runtime.prompt_scores import PromptLogprobs, PromptSpans, prompt_logprobs, prompt_spans
from tidegate.runtime.step_input import Draws, draws_of, engine_step
from tidegate.runtime.worker import Worker
from tidegate.scheduling import Decision, Outcome, Plan, Scheduler, Stall, Step, accept_drafts


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Dispatched: pages are there, nothing computes yet."""

    plan: Plan
    reservation: Reservation | JointReservation
    pages: StepPages


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """A step that computes, or has and was not applied yet."""

    step: Step
    reservation: Reservation | JointReservation
    pages: StepPages
    draws: Draws
    drawn: Future[Drawn]
    spans: PromptSpans | None


@dataclass(frozen=True, slots=True, eq=False)
class StepReport:
    """What one turn of the loop did. ``logprobs`` are by request id; ``stall`` tells why nothing can be done.

    ``timer_s``: nothing was done, and nothing will be before this clock time.
    """

    outcome: Outcome
    logprobs: tuple[tuple[str, TokenLogprob], ...] = ()
    prompts: tuple[PromptLogprobs, ...] = ()
    stall: Stall | None = None
    timer_s: float | None = None
    error: Exception | None = None


class StepLoop:
    """Drives one scheduler, one cache and one engine. Whatever is to take effect is called between ``run_once`` calls.

    What fails before dispatch leaves everything as it was and raises. When a step fails later, its reservation is
    rolled back, its requests end with reason ``error``, and the loop lives on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        manager: KVCacheManager,
        engine: Engine,
        drawer: Drawer,
        *,
        clock: Clock,
        worker: Worker,
        overlap: bool,
        deferral: Deferral | None = None,
        padding: StepInput | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._manager = manager
        self._engine = engine
        self._drawer = drawer
        self._clock = clock
        self._worker = worker
        self._overlap = overlap
        self._deferral = deferral or ReserveLate(scheduler, manager)
        self._padding = padding
        self._must_compute = False
        self._filler: Future[Drawn] | None = None
        self._flight: _Flight | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a step computes."""
        return self._flight is not None

    def run_once(self) -> StepReport:
        """Take one step: launch one, and settle it (with overlap: settle the one before)."""
        return self.conclude(self.propose())

    def propose(self) -> Plan:
        """Decide the next step; ``conclude`` or ``abandon`` follows."""
        return self._deferral.propose(now=self._clock.now())

    def restrict(self, plan: Plan, decision: Decision) -> Plan:
        """Return what a decision leaves of the proposed plan."""
        return self._deferral.restrict(plan, decision)

    def abandon(self) -> None:
        """Give up the proposed plan."""
        self._deferral.abandon()

    def release(self) -> None:
        """Give back what is kept for prefills that were held back; they are planned anew."""
        self._deferral.release()

    def conclude(self, plan: Plan, *, must_compute: bool = False) -> StepReport:
        """Carry out the proposed plan, or what filters left of it.

        With ``must_compute`` the engine is called even when the plan computes nothing, with the padding entry.
        """
        self._must_compute = must_compute
        try:
            self._end_padding()
        except BaseException:
            self._deferral.abandon()
            raise
        if plan.is_idle:
            self._deferral.abandon()
        prepared = None if plan.is_idle else self._prepare(plan)
        self._scheduler.note(plan)
        report = StepReport(Outcome(), stall=plan.stall, timer_s=plan.timer_s)
        if self._flight is not None:
            report = self._land(self._flight, prepared)
        if report.error is not None:
            prepared = None  # was rolled back; the other ranks run the step all the same
        elif plan.exhausted:
            report = StepReport(self._scheduler.retire(plan, now=self._clock.now()))
        if prepared is not None:
            self._flight = self._launch(prepared)
            if not self._overlap:
                report = self._land(self._flight, None)
        elif must_compute:
            self._filler = self._worker.submit(self._pad())
            if not self._overlap:
                self._end_padding()
        return report

    def settle(self) -> StepReport:
        """Wait for the step in flight and apply it, launching none."""
        self._end_padding()
        return StepReport(Outcome()) if self._flight is None else self._land(self._flight, None)

    def close(self) -> None:
        """Settle what is in flight; give back what is kept and stop the worker, even if a padding step has failed."""
        try:
            self.settle()
        finally:
            self._deferral.release()
            self._worker.close()

    def _prepare(self, plan: Plan) -> _Prepared:
        reservation = self._deferral.take(plan)
        try:
            return _Prepared(plan, reservation, reservation.dispatch())
        except BaseException:
            reservation.rollback()
            raise

    def _launch(self, prepared: _Prepared) -> _Flight:
        now = self._clock.now()
        sequences = self._scheduler.sequences
        step = self._scheduler.start(prepared.plan, prepared.reservation, now=now)
        draws, drawn, spans = draws_of(step), Future[Drawn](), prompt_spans(step, sequences)
        try:
            self._manager.copy_pages(prepared.pages.copies)
            for row in step.rows[len(step.rows) - step.num_admitted :].tolist():
                self._drawer.enter(row, sequences.request(row), int(sequences.order[row]))
            work = engine_step(step, prepared.pages, sequences, None if spans is None else spans.sources)
            drawn = self._worker.submit(self._job(step, draws, spans, work))
        except Exception as error:
            drawn.set_exception(error)
        except BaseException as error:
            prepared.reservation.rollback()
            self._scheduler.fail(step, EngineError(f"interrupted by {type(error).__name__}"), now=now)
            raise
        return _Flight(step, prepared.reservation, prepared.pages, draws, drawn, spans)

    def _job(self, step: Step, draws: Draws, spans: PromptSpans | None, work: StepInput | None) -> Callable[[], Drawn]:
        """Return what the worker runs. It reads arrays gathered here, never the scheduler's or the cache's own."""
        nothing = Drawn(np.zeros(0, dtype=np.int64))
        if work is None:
            return self._pad() if self._must_compute else lambda: nothing
        count, draw = len(draws.places), None
        if count:
            draw = self._drawer.prepare(step.rows[draws.places], self._scheduler.sequences, draws.ahead)

        def compute() -> Drawn:
            logits: Any = self._engine.forward(work)  # an array or a tensor: both can be cut
            if spans is None:
                return nothing if draw is None else draw(logits)
            drawn = nothing if draw is None else draw(logits[:count])
            return replace(drawn, prompts=self._drawer.score(logits[count:], spans.targets, spans.wanted))

        return compute

    def _end_padding(self) -> None:
        """Wait for a padding step; an error of it is raised, for there is no request that it could end."""
        filler, self._filler = self._filler, None
        if filler is not None:
            filler.result()

    def _pad(self) -> Callable[[], Drawn]:
        """Return the job of a step in which only other ranks have something to compute."""
        engine, padding = self._engine, self._padding

        def compute() -> Drawn:
            if padding is not None:
                engine.forward(padding)
            return Drawn(np.zeros(0, dtype=np.int64))

        return compute

    def _give_up(self, prepared: _Prepared | None) -> None:
        """Undo a dispatched step that was never launched; its rows keep their private copies, so these are made."""
        if prepared is None:
            return
        try:
            if prepared.pages.copies:
                self._manager.copy_pages(prepared.pages.copies)
        finally:
            prepared.reservation.rollback()

    def _land(self, flight: _Flight, prepared: _Prepared | None) -> StepReport:
        """Wait for a step and apply it; if it failed, roll back what was prepared on top of it, then it."""
        try:
            drawn = flight.drawn.result()
            self._manager.copy_pages(flight.pages.snapshots)
            tokens, is_kept = flight.draws.grid(flight.step, drawn.tokens), None
            if flight.step.drafts is not None:
                tokens = accept_drafts(flight.step, tokens, self._scheduler.sequences)
                is_kept = tokens[flight.draws.places, flight.draws.ahead] >= 0
        except Exception as error:
            self._flight = None
            self._give_up(prepared)
            flight.reservation.rollback()
            return StepReport(self._scheduler.fail(flight.step, error, now=self._clock.now()), error=error)
        except BaseException:
            # Interrupted while it waited: the step still computes and stays in flight.
            self._give_up(prepared)
            raise
        self._flight = None
        flight.reservation.keep()
        logprobs = request_logprobs(drawn, flight.step.rows[flight.draws.places], self._scheduler.sequences, is_kept)
        prompts: tuple[PromptLogprobs, ...] = ()
        if flight.spans is not None and drawn.prompts is not None:
            prompts = prompt_logprobs(flight.spans, drawn.prompts)
        return StepReport(self._scheduler.apply(flight.step, tokens, now=self._clock.now()), logprobs, prompts)
