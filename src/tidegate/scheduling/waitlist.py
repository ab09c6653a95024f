"""Requests that own nothing, and what is remembered of them from plan to plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from tidegate.base import InternalError
from tidegate.cache import Candidate, KVCacheManager
from tidegate.request import Milestones, Phase, Request, RequestOutput, WaitingQueue
from tidegate.scheduling.config import SchedulerConfig
from tidegate.scheduling.deadlines import Deadlines
from tidegate.scheduling.intake import reuse_scope
from tidegate.scheduling.memory import Memory
from tidegate.scheduling.plan import Plan, Waiting
from tidegate.scheduling.policy import queue_rank
from tidegate.scheduling.statistics import Counters


class Waitlist:
    """The queue, the counters that plans advance, and the deadlines. Only the scheduler writes here."""

    def __init__(self, manager: KVCacheManager, config: SchedulerConfig, counters: Counters) -> None:
        self.queue: WaitingQueue[Waiting] = WaitingQueue(config.max_waiting)
        self.memory = Memory()
        self.deadlines = Deadlines()
        self._manager = manager
        self._policy = config.policy
        self._counters = counters
        self._num_submitted = 0

    def enter(self, request: Request, max_length: int, *, now: float) -> None:
        """Queue a request that was checked."""
        candidate = self._manager.candidate(
            request.prompt,
            reuse_scope(request),
            access="none" if request.prompt_logprobs else request.access,
            declared=request.declared,
        )
        if self._policy == "shortest_uncached_first":
            self._manager.lookup(candidate)
        order, since = self._num_submitted, self.memory.admitting_plans
        self._push(Waiting(request, candidate, order, max_length, Phase.WAITING, Milestones(), since, now))
        self._num_submitted += 1
        self._counters.submitted += 1
        if request.timeout_s is not None:
            self.deadlines.add(request.request_id, request.arrival_s + request.timeout_s)

    def unstarted(self, most: int) -> list[Request]:
        """Return the first ``most`` waiting requests that never ran."""
        return [waiting.request for waiting in islice(self.queue, most) if waiting.phase is Phase.WAITING]

    def withdraw(self, request_id: str) -> None:
        """Take a request out as if it had never come; raises ``InternalError`` when it does not wait, or ran before."""
        waiting = self.queue.pop(request_id)
        if waiting is None or waiting.phase is not Phase.WAITING:
            raise InternalError(f"request {request_id!r} cannot be handed over", request_id=request_id)
        self.deadlines.forget(request_id)
        self.memory.forget(request_id)
        self._counters.submitted -= 1

    def put_back(self, past: Milestones, candidate: Candidate, request: Request, order: int, max_length: int) -> None:
        """Queue a suspended request again, in its old place."""
        again = replace(past, num_suspensions=past.num_suspensions + 1)
        self._push(Waiting(request, candidate, order, max_length, Phase.SUSPENDED, again, 0, 0.0))

    def note(self, plan: Plan) -> None:
        """Store what a plan counted, and what it saw of the requests it looked at."""
        if not (plan.admissions or plan.held or plan.seen or self.memory.batch_waits):
            return
        memory, counters = self.memory, self._counters
        memory.note(plan)
        for entry in plan.admissions:
            counters.overtakes += len(entry.overtaken)
            for request_id in entry.overtaken:
                counters.most_overtakes = max(counters.most_overtakes, memory.overtakes[request_id])
        for waiting, num_uncached in plan.seen:
            rank = queue_rank(self._policy, waiting.request, waiting.phase, num_uncached)
            self.queue.update(waiting.request.request_id, rank, num_uncached)

    def finish(self, output: RequestOutput) -> RequestOutput:
        """Forget a request that ended; its output gets what was counted of it."""
        self._counters.finished += 1
        self.deadlines.forget(output.request_id)
        num_overtakes = self.memory.forget(output.request_id)
        return replace(output, num_overtakes=num_overtakes) if num_overtakes else output

    def _push(self, waiting: Waiting) -> None:
        num_uncached = waiting.candidate.num_tokens - waiting.candidate.reused
        rank = queue_rank(self._policy, waiting.request, waiting.phase, num_uncached)
        self.queue.push(waiting.request.request_id, (rank, waiting.order), waiting, num_uncached)
