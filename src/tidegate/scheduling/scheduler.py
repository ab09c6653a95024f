"""The scheduler: plans steps, and is the sole writer of sequence tokens and phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import lcm

import numpy as np

from tidegate.base import ConfigError, Int64Array, InternalError, Retention
from tidegate.cache import JointReservation, KVCacheManager, Quote, Reservation
from tidegate.request import (
    FinishReason,
    Milestones,
    Phase,
    Request,
    RequestOutput,
    RunningSequences,
    SequenceStart,
    check_move,
    check_moves,
)
from tidegate.scheduling.acceptance import settle_points
from tidegate.scheduling.allowance import Allowance
from tidegate.scheduling.balance import Decision
from tidegate.scheduling.batch_waiting import batch_wait
from tidegate.scheduling.config import SchedulerConfig
from tidegate.scheduling.drafting import Drafter
from tidegate.scheduling.drafts import DraftSource
from tidegate.scheduling.endings import output_of_unstarted, output_of_waiting
from tidegate.scheduling.intake import ModelLimits, check_prompt_length, check_servable, check_tokens, reachable_length
from tidegate.scheduling.load import RankLoad, rank_load
from tidegate.scheduling.plan import Admission, Outcome, Plan, Step, Waiting
from tidegate.scheduling.planner import make_plan
from tidegate.scheduling.prefill import PlanView
from tidegate.scheduling.restricting import base_quote, restrict
from tidegate.scheduling.statistics import Counters, SchedulerStatistics
from tidegate.scheduling.waitlist import Waitlist


class Scheduler:
    """Requests in, plans and outputs out, around one cache.

    A step is ``plan``, the cache's ``reserve`` and ``dispatch``, ``note``, ``start``, the engine, ``apply``. Until
    ``note`` nothing of the scheduler has changed. Submitting and finishing are for between steps. With a source of
    drafts, decodes may carry some, and ``accept_drafts`` stands before ``apply``.

    ``restrict(plan, decision)`` returns what a decision leaves of a plan, ``base_quote(plan)`` prices a plan without
    its admissions, ``load()`` tells what waits and runs, ``unstarted(n)`` who waits and never ran, and
    ``check(request)`` raises for a request that can never be served; they change nothing.
    """

    def __init__(
        self, manager: KVCacheManager, config: SchedulerConfig, model: ModelLimits, drafts: DraftSource | None = None
    ) -> None:
        align = lcm(*(g.block_tokens for g in manager.groups if g.retention is not Retention.STATE))
        for field, value in (("max_num_tokens", config.max_num_tokens), ("max_chunk_tokens", config.max_chunk_tokens)):
            if value is not None and value < align:
                raise ConfigError(
                    f"{field}={value} must be at least {align}: chunks end at block borders", field=field, value=value
                )
        pool_pages = manager.quote().supply
        self.config = config
        self._manager = manager
        self._model = model
        self._sequences = RunningSequences(manager.config.max_sequences, manager.config.max_seq_len)
        self._drafter = None if drafts is None else Drafter(drafts, manager, self._sequences, model.vocab_size)
        self._counters = Counters()
        self._waitlist = Waitlist(manager, config, self._counters)
        self._queue = self._waitlist.queue
        self._view = PlanView(
            manager=manager,
            sequences=self._sequences,
            queue=self._queue,
            memory=self._waitlist.memory,
            config=config,
            allowance=Allowance(manager, self._sequences, config, pool_pages),
            pool_pages=pool_pages,
            align=align,
            drafter=self._drafter,
        )
        self.restrict: Callable[[Plan, Decision], Plan] = partial(restrict, self._view)
        self.base_quote: Callable[[Plan], Quote] = partial(base_quote, self._view)
        self.load: Callable[[], RankLoad] = partial(rank_load, self._view)
        self.unstarted: Callable[[int], list[Request]] = self._waitlist.unstarted
        self.check: Callable[[Request], None] = partial(
            check_servable, manager=manager, model=model, most=config.max_prompt_tokens
        )

    @property
    def sequences(self) -> RunningSequences:
        """The running sequences, to read."""
        return self._sequences

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return len(self._queue) > 0 or self._sequences.num_active > 0

    def statistics(self) -> SchedulerStatistics:
        """Return the counters."""
        return self._counters.freeze(waiting=len(self._queue), running=self._sequences.num_active)

    def submit(self, request: Request, *, now: float) -> RequestOutput | None:
        """Queue a request, or return its output when it ends at once because not even its prompt can ever fit.

        Raises ``ConfigError`` for ids outside the vocabulary or in use, ``RequestTooLong``, ``QueueFull``; then
        nothing has changed.
        """
        request_id = request.request_id
        if request_id in self._queue or self._sequences.row_of(request_id) is not None:
            raise ConfigError(f"request_id={request_id!r} is in use", field="request_id", value=request_id)
        check_tokens(request, self._model)
        check_prompt_length(request, self.config.max_prompt_tokens)
        max_length = reachable_length(request, self._manager)
        self._queue.check_room()
        if max_length <= request.num_prompt_tokens:
            self._counters.submitted += 1
            self._counters.finished += 1
            return output_of_unstarted(request, now=now)
        self._waitlist.enter(request, max_length, now=now)
        return None

    def finish(self, request_id: str, reason: FinishReason, *, now: float) -> RequestOutput | None:
        """End a request in any phase; None when it is not here. Pages in use by an open step follow when it settles."""
        waiting = self._queue.pop(request_id)
        if waiting is not None:
            return self._end_waiting(waiting, reason, now)
        row = self._sequences.row_of(request_id)
        if row is None:
            return None
        output = self._end_running(row, reason, now)
        self._close_settled(np.array([row], dtype=np.int64))
        return output

    def expire(self, now: float) -> tuple[RequestOutput, ...]:
        """End requests whose time is over, in any phase, with reason ``aborted``."""
        if not self._waitlist.deadlines:
            return ()
        ended = [self.finish(name, FinishReason.ABORTED, now=now) for name in self._waitlist.deadlines.due(now)]
        self._counters.expired += len(ended)
        return tuple(output for output in ended if output is not None)

    def plan(self, *, now: float = 0.0, parked: tuple[Admission, ...] = ()) -> Plan:
        """Decide the next step, at clock time ``now``. Changes nothing. ``parked`` admissions have their pages."""
        view = replace(self._view, parked=parked) if parked else self._view
        return batch_wait(view, make_plan(view), now)

    def is_waiting(self, waiting: Waiting) -> bool:
        """Whether this very entry is in the queue: its id may be another request's by now."""
        return self._queue.get(waiting.request.request_id) is waiting

    def withdraw(self, request_id: str) -> None:
        """Forget a waiting request that another scheduler takes over: it owns nothing and has no output here."""
        self._waitlist.withdraw(request_id)

    def note(self, plan: Plan) -> None:
        """Store what a plan counted of those that wait: once, for what filters left of it, also when it is idle."""
        self._waitlist.note(plan)

    def start(self, plan: Plan, reservation: Reservation | JointReservation, *, now: float) -> Step:
        """Enter a dispatched plan: victims go back to the queue, admitted requests into their rows."""
        rows = reservation.rows
        num_admitted = len(plan.admissions)
        if len(rows) != plan.num_sequences or int((reservation.ends - reservation.starts).sum()) != plan.num_tokens:
            raise InternalError("the reservation differs from its plan", planned=plan.num_tokens, rows=len(rows))
        self._suspend(plan, reservation)
        for entry, row in zip(plan.admissions, rows[len(rows) - num_admitted :].tolist(), strict=True):
            self._enter(entry.waiting, row, entry.start, now)
        counters = self._counters
        counters.steps += 1
        counters.decode_tokens += len(plan.decodes)
        counters.prefill_tokens += plan.num_tokens - plan.num_decode_tokens
        counters.draft_tokens += plan.num_decode_tokens - len(plan.decodes)
        if self._drafter is not None and plan.drafts is not None:
            self._drafter.note(plan.decodes, plan.drafts)
        counters.deferrals += len(plan.deferred)
        return _begun(plan, reservation, self._sequences)

    def apply(self, step: Step, tokens: Int64Array, *, now: float) -> Outcome:
        """Settle a step: publish, advance sequences by ``tokens`` (one per row, read where it samples), end some.

        Of a step with drafts, ``tokens`` is what ``accept_drafts`` returned.

        A sequence that ended meanwhile takes no token; its pages return here, with its last open step.
        """
        sequences, rows = self._sequences, step.rows
        is_ended = sequences.is_ended(rows)
        any_ended = bool(is_ended.any())
        histories = step.ends if step.is_whole else np.where(step.is_computed, step.ends, self._manager.history[rows])
        if step.drafts is not None:
            histories = settle_points(step, tokens, histories)
        if step.samples_all and not any_ended:
            fed, drawn = rows, tokens
            self._manager.advance(rows, histories, tokens)
        else:
            takes = step.samples & ~is_ended
            fed, drawn = rows[takes], tokens[takes]
            self._manager.advance(rows, histories, np.where(takes, tokens.T, -1).T)
        sequences.append(fed, drawn, now=now)
        if self._drafter is not None and step.drafts is not None:
            self._counters.accepted_tokens += self._drafter.learn(step.rows, step.drafts, tokens)
        finished = self._end_complete(fed, now)
        if finished or any_ended:
            self._close_settled(rows[sequences.is_ended(rows)])
        num_tokens = len(fed) if step.drafts is None else int(np.count_nonzero(drawn >= 0))
        return Outcome(num_tokens=num_tokens, finished=finished)

    def fail(self, step: Step, error: Exception, *, now: float) -> Outcome:
        """End the requests of a step whose reservation was rolled back, with reason ``error``."""
        sequences, rows = self._sequences, step.rows
        live = rows[~sequences.is_ended(rows)]
        facts = f"{type(error).__name__}: {error}"
        finished = tuple(self._end_running(row, FinishReason.ERROR, now, facts) for row in live.tolist())
        num_kept = len(rows) - step.num_admitted
        sequences.release(rows[num_kept:])  # the roll-back has taken their rows back
        self._close_settled(rows[:num_kept])
        return Outcome(finished=finished)

    def retire(self, plan: Plan, *, now: float) -> Outcome:
        """End a plan's exhausted sequences: the last that runs and can get no further page ends with ``capacity``."""
        finished = tuple(self._end_running(row, FinishReason.CAPACITY, now) for row in plan.exhausted)
        self._close_settled(np.array(plan.exhausted, dtype=np.int64))
        return Outcome(finished=finished)

    def _enter(self, waiting: Waiting, row: int, start: int, now: float) -> None:
        check_move(waiting.phase, Phase.PREFILL)
        request, candidate = waiting.request, waiting.candidate
        is_resumed = waiting.phase is Phase.SUSPENDED
        self._queue.pop(request.request_id)
        past = waiting.milestones
        if not is_resumed:
            past = Milestones(admitted_s=now, num_cached_tokens=start)
        sequence = SequenceStart(
            request=request,
            order=waiting.order,
            tokens=candidate.tokens,
            max_length=waiting.max_length,
            stop_ids=self._model.stop_ids(request),
            milestones=past,
            reused=start,
        )
        self._sequences.enter(row, sequence, now=now)
        if self._drafter is not None:
            self._drafter.enter(row, request)
        self._counters.admission(candidate.num_tokens, start, now - request.arrival_s, is_resumed=is_resumed)

    def _suspend(self, plan: Plan, reservation: Reservation | JointReservation) -> None:
        if not plan.victims:
            return
        sequences = self._sequences
        rows = np.array(plan.victims, dtype=np.int64)
        check_moves(sequences.phase[rows], Phase.SUSPENDED)
        for row, candidate in zip(plan.victims, reservation.suspended, strict=True):
            order, max_length = int(sequences.order[row]), int(sequences.max_length[row])
            self._waitlist.put_back(sequences.milestones(row), candidate, sequences.request(row), order, max_length)
        sequences.release(rows)
        self._counters.suspended += len(rows)

    def _end_complete(self, rows: Int64Array, now: float) -> tuple[RequestOutput, ...]:
        """End the sequences whose last token is a stop token or their last allowed one."""
        sequences = self._sequences
        is_stopped = sequences.is_at_stop(rows)
        is_over = is_stopped | (sequences.num_tokens[rows] >= sequences.max_length[rows])
        if not is_over.any():
            return ()
        return tuple(
            self._end_running(row, FinishReason.STOP if stopped else self._length_reason(row), now)
            for row, stopped in zip(rows[is_over].tolist(), is_stopped[is_over].tolist(), strict=True)
        )

    def _length_reason(self, row: int) -> FinishReason:
        sequences = self._sequences
        is_all = int(sequences.num_tokens[row]) >= sequences.request(row).max_length
        return FinishReason.LENGTH if is_all else FinishReason.CAPACITY

    def _end_running(self, row: int, reason: FinishReason, now: float, error: str | None = None) -> RequestOutput:
        return self._waitlist.finish(self._sequences.finish(row, reason, now=now, error=error))

    def _end_waiting(self, waiting: Waiting, reason: FinishReason, now: float) -> RequestOutput:
        check_move(waiting.phase, Phase.FINISHED)
        return self._waitlist.finish(output_of_waiting(waiting, reason, now=now))

    def _close_settled(self, rows: Int64Array) -> None:
        """Give back the pages of ended sequences that no open step uses any more."""
        done = rows[self._manager.num_open[rows] == 0]
        if len(done):
            self._manager.close(done)
            self._sequences.release(done)


def _begun(plan: Plan, reservation: Reservation | JointReservation, sequences: RunningSequences) -> Step:
    """Return a plan as a step, once its admissions are in their rows."""
    is_computed = ~sequences.is_ended(reservation.rows)
    samples = is_computed & (reservation.ends >= sequences.target[reservation.rows])
    return Step(
        rows=reservation.rows,
        starts=reservation.starts,
        ends=reservation.ends,
        samples=samples,
        is_computed=is_computed,
        is_whole=bool(is_computed.all()),
        samples_all=bool(samples.all()),
        num_admitted=len(plan.admissions),
        drafts=plan.drafts.of_step(is_computed) if plan.drafts is not None and plan.drafts.num_tokens else None,
    )
