"""When a step's pages are taken, and what becomes of those of a prefill that is held back.

``ReserveLate`` filters first and takes what is left. ``ReserveEarly`` takes while it schedules, as engines do whose
scheduler allocates; a prefill that is then held back gives its pages back (``revert``) or keeps them (``hold``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from tidegate.base import ConfigError, shown
from tidegate.cache import JointReservation, KVCacheManager, Reservation
from tidegate.runtime.context_allocator import ContextAllocator
from tidegate.scheduling import Admission, Decision, Plan, Scheduler, without_held

DeferralName = Literal["reserve_late", "revert", "hold"]
DEFERRALS = ("reserve_late", "revert", "hold")


class Deferral(Protocol):
    """Plans, takes pages, and gives them back. Each ``propose`` is followed by ``take`` or ``abandon``."""

    def propose(self, *, now: float) -> Plan:
        """Plan the next step."""
        ...

    def restrict(self, plan: Plan, decision: Decision) -> Plan:
        """Return what a decision leaves of the proposed plan."""
        ...

    def take(self, plan: Plan) -> Reservation | JointReservation:
        """Return the reservation of the proposed plan or of what is left of it, which is not idle."""
        ...

    def abandon(self) -> None:
        """Give up the proposed plan: nothing of it is carried out."""
        ...

    def release(self) -> None:
        """Give back whatever is kept for prefills that were held back."""
        ...


class ReserveLate:
    """A prefill that is held back never owned anything."""

    def __init__(self, scheduler: Scheduler, manager: KVCacheManager) -> None:
        self._scheduler = scheduler
        self._manager = manager

    def propose(self, *, now: float) -> Plan:
        """Plan, taking nothing."""
        return self._scheduler.plan(now=now)

    def restrict(self, plan: Plan, decision: Decision) -> Plan:
        """Price what the decision leaves."""
        return self._scheduler.restrict(plan, decision)

    def take(self, plan: Plan) -> Reservation:
        """Reserve all of the plan at once."""
        return self._manager.reserve(plan.quote)

    def abandon(self) -> None:
        """Do nothing: nothing was taken."""

    def release(self) -> None:
        """Do nothing: nothing is kept."""


class ReserveEarly:
    """Pages are taken while scheduling, each admission's by a reservation of its own.

    With ``keeps`` an admission that is held back stays reserved and is planned again as it is, before all others; it
    loses its pages as soon as anything that runs is short of some.
    """

    def __init__(self, scheduler: Scheduler, manager: KVCacheManager, *, keeps: bool) -> None:
        self._scheduler = scheduler
        self._manager = manager
        self._keeps = keeps
        self._allocator = ContextAllocator((manager,))
        self._base: Reservation | None = None
        self._parked: dict[str, Admission] = {}

    def propose(self, *, now: float) -> Plan:
        """Plan and reserve. An admission whose pages went to others meanwhile is left out."""
        self._drop_ended()
        plan = self._scheduler.plan(now=now, parked=self._entries())
        while self._parked and self._is_pressed(plan):
            self._give_back(next(reversed(self._parked)))
            plan = self._scheduler.plan(now=now, parked=self._entries())
        return self._reserve(plan)

    def restrict(self, plan: Plan, decision: Decision) -> Plan:
        """Leave out what is held. A cut is priced and reserved anew."""
        is_cut = decision.max_tokens is not None and plan.num_tokens > decision.max_tokens
        if not is_cut:
            rest = without_held(plan, decision)
            return rest if len(rest.chunks) == len(plan.chunks) else self._reserve_base(rest)
        self._drop_base()
        for entry in reversed(plan.admissions):
            self._give_back(entry.waiting.request.request_id)
        return self._reserve(self._scheduler.restrict(self._without_outdated(plan), decision))

    def take(self, plan: Plan) -> JointReservation:
        """Hand out the reservations of what is left; what was held back is given back, unless it is to be kept."""
        parts = [] if self._base is None else [self._base]
        self._base = None
        for entry in plan.admissions:
            request_id = entry.waiting.request.request_id
            del self._parked[request_id]
            parts += self._allocator.take(request_id)
        if not self._keeps:
            self.release()
        return JointReservation(parts)

    def abandon(self) -> None:
        """Give back what was reserved for the proposed plan; with ``keeps``, admissions stay reserved."""
        self._drop_base()
        if not self._keeps:
            self.release()

    def release(self) -> None:
        """Give back every admission that was held back."""
        for request_id in reversed(list(self._parked)):
            self._give_back(request_id)

    def _reserve(self, plan: Plan) -> Plan:
        """Reserve each admission, then what runs already; return the plan without admissions that got nothing.

        In this order, because what runs takes pages from the cache that an admission may want to reuse.
        """
        admissions = []
        for entry in plan.admissions:
            request_id = entry.waiting.request.request_id
            if request_id in self._parked or self._open(entry):
                self._parked[request_id] = entry
                admissions.append(entry)
        self._reserve_base(plan)
        return plan if len(admissions) == len(plan.admissions) else replace(plan, admissions=tuple(admissions))

    def _without_outdated(self, plan: Plan) -> Plan:
        """Hold back what was kept for so long that more of it is cached by now: the next plan begins it further on."""
        kept = tuple(e for e in plan.admissions if self._manager.lookup(e.waiting.candidate) == e.start)
        if len(kept) == len(plan.admissions):
            return plan
        held = tuple(e.waiting.request.request_id for e in plan.admissions if e not in kept)
        return replace(plan, admissions=kept, held=plan.held + held)

    def _reserve_base(self, plan: Plan) -> Plan:
        """Reserve what runs already, instead of what was reserved of it before."""
        self._drop_base()
        if len(plan.decodes) or plan.chunks or plan.victims:
            self._base = self._manager.reserve(self._scheduler.base_quote(plan))
        return plan

    def _entries(self) -> tuple[Admission, ...]:
        return tuple(self._parked.values())

    def _is_pressed(self, plan: Plan) -> bool:
        """Whether something that runs is short of pages, or a kept admission has no place in the step."""
        planned = {entry.waiting.request.request_id for entry in plan.admissions}
        return bool(plan.victims or plan.exhausted or plan.is_short) or not self._parked.keys() <= planned

    def _drop_base(self) -> None:
        base, self._base = self._base, None
        if base is not None and base.is_open:
            base.rollback()

    def _open(self, entry: Admission) -> bool:
        request = entry.waiting.request
        if self._allocator.prepare_context(request, (entry.waiting.candidate,)) != entry.start:
            self._allocator.free_resources(request)
            return False
        if self._allocator.resize_context(request, entry.end - entry.start):
            return True
        self._allocator.free_resources(request)
        return False

    def _give_back(self, request_id: str) -> None:
        entry = self._parked.pop(request_id)
        self._allocator.free_resources(entry.waiting.request)

    def _drop_ended(self) -> None:
        """Give back what is kept for requests that were cancelled since."""
        for request_id in [name for name, e in self._parked.items() if not self._scheduler.is_waiting(e.waiting)]:
            self._give_back(request_id)


def deferral_of(name: DeferralName, scheduler: Scheduler, manager: KVCacheManager) -> Deferral:
    """Return the deferral policy of that name."""
    if name not in DEFERRALS:
        raise ConfigError(f"deferral={shown(name)} must be one of {', '.join(DEFERRALS)}", field="deferral", value=name)
    if name == "reserve_late":
        return ReserveLate(scheduler, manager)
    return ReserveEarly(scheduler, manager, keeps=name == "hold")
