"""Allocation while scheduling, for embedders: the call names they know, on open reservations.

Nothing is remembered to be undone later. A prepared context holds at most one open reservation in each cache (target
and draft, say); reverting rolls it back, holding keeps it open, and dispatching hands it to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.base import ConfigError, Int32Array, Int64Array, StateError, check_integer
from tidegate.cache import (
    Candidate,
    JointReservation,
    KVCacheManager,
    Quote,
    Reservation,
    StepPages,
    reserve_all,
)
from tidegate.request import Request
from tidegate.scheduling import reuse_scope


@dataclass(slots=True, eq=False)
class _Context:
    """One request: candidates while it owns nothing, rows while it is active. ``parts`` is its open reservation.

    ``goal`` is where its context ends: every token that was known when it was prepared or suspended.
    """

    candidates: tuple[Candidate, ...]
    goal: int
    rows: tuple[int, ...] = ()
    parts: tuple[Reservation, ...] = ()
    end: int = 0
    is_generation: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DispatchedStep:
    """A step under way: its pages in each cache. ``keep`` it when it was computed, else ``rollback``."""

    pages: tuple[StepPages, ...]
    _joints: tuple[JointReservation, ...]
    _begun: tuple[_Context, ...]
    """Contexts that this step made active."""

    def keep(self) -> None:
        """Make it final; the step is settled by ``ContextAllocator.update``."""
        for joint in self._joints:
            joint.keep()

    def rollback(self) -> None:
        """Take every sequence back to where it was before the step; page copies must have been made.

        Raises ``StateError`` when the step was kept or rolled back already.
        """
        if not all(joint.is_open for joint in self._joints):
            raise StateError("the step was kept or rolled back already")
        for joint in self._joints:
            joint.rollback()
        for context in self._begun:
            context.rows = ()


@dataclass(slots=True)
class ContextAllocator:
    """Contexts and generations of requests, in one cache or in several that must agree.

    Shortage is ``False`` and changes nothing; a call that does not suit the request's state raises ``StateError``.
    """

    managers: tuple[KVCacheManager, ...]
    _contexts: dict[str, _Context] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.managers:
            raise ConfigError("managers=() must hold at least one cache", field="managers")

    def prepare_context(self, request: Request, candidates: Sequence[Candidate] | None = None) -> int:
        """Look the request up and return how many tokens it has already: reused, or computed by earlier chunks.

        The caches agree on one reused length. It takes no page. ``candidates``, one per cache, spare the look-up of a
        caller that made them itself.
        """
        context = self._contexts.get(request.request_id)
        if context is None:
            made = tuple(candidates) if candidates else tuple(_candidate(m, request) for m in self.managers)
            context = self._contexts[request.request_id] = _Context(made, made[0].num_tokens)
        return self._position(context)

    def resize_context(self, request: Request, num_tokens: int) -> bool:
        """Reserve what the next ``num_tokens`` of the prompt need, instead of what was reserved for it before."""
        context = self._context(request)
        if context.is_generation and context.parts:
            raise StateError(f"request {request.request_id!r} has a generation reserved: revert it first")
        begin = self._position(context)
        check_integer("num_tokens", num_tokens, -(2**62), 2**62)
        if not 0 < num_tokens <= context.goal - begin:
            raise ConfigError(
                f"num_tokens={num_tokens} must be in [1, {context.goal - begin}], what is left of the context",
                field="num_tokens",
                value=num_tokens,
            )
        return self._reserve(context, begin + num_tokens, is_generation=False)

    def revert_allocate_context(self, request: Request) -> None:
        """Give back what ``resize_context`` reserved; nothing to do when nothing is. The request stays prepared."""
        context = self._context(request)
        if not context.is_generation:
            _roll_back(context)

    def try_allocate_generation(self, request: Request, num_draft_tokens: int = 0) -> bool:
        """Reserve the next token's page and those of ``num_draft_tokens`` draft tokens."""
        context = self._context(request)
        check_integer("num_draft_tokens", num_draft_tokens, 0, 2**20)
        if not context.rows or context.candidates or self._position(context) < context.goal:
            raise StateError(f"request {request.request_id!r} has no computed context")
        return self._reserve(context, self._position(context) + 1 + num_draft_tokens, is_generation=True)

    def revert_allocate_generation(self, request: Request) -> None:
        """Give back what ``try_allocate_generation`` reserved; nothing to do when nothing is."""
        context = self._context(request)
        if context.is_generation:
            _roll_back(context)

    def dispatch(self, requests: Sequence[Request]) -> DispatchedStep:
        """Hand the reservations of these requests to a step, in this order: the engine may write from here on."""
        contexts = tuple(self._context(request) for request in requests)
        for request, context in zip(requests, contexts, strict=True):
            if not context.parts:
                raise StateError(f"request {request.request_id!r} has nothing reserved")
        joints = tuple(JointReservation([c.parts[i] for c in contexts]) for i in range(len(self.managers)))
        pages = tuple(joint.dispatch() for joint in joints)
        begun = tuple(context for context in contexts if not context.rows)
        for context in contexts:
            context.rows = tuple(int(part.rows[0]) for part in context.parts)
            context.parts = ()
        return DispatchedStep(pages, joints, begun)

    def take(self, request_id: str) -> tuple[Reservation, ...]:
        """Give the open reservation of a context to the caller, who decides about it from here, and forget it."""
        context = self._contexts.pop(request_id, None)
        if context is None or not context.parts:
            raise StateError(f"request {request_id!r} has nothing reserved")
        return context.parts

    def update(self, request: Request, history: int, tokens: Sequence[int] | Int32Array) -> None:
        """Settle the request's oldest step at ``history``; ``tokens`` became known by it."""
        context = self._context(request)
        if not context.rows:
            raise StateError(f"request {request.request_id!r} has no step to settle")
        context.candidates = ()
        fresh = np.asarray(tokens, dtype=np.int32).reshape(1, -1) if len(tokens) else np.full((1, 1), -1, np.int32)
        for manager, row in zip(self.managers, context.rows, strict=True):
            manager.advance(_one(row), _one(history), fresh)

    def suspend_request(self, request: Request) -> None:
        """Give all pages back; what was published may be found again. Idempotent."""
        context = self._context(request)
        _roll_back(context)
        if context.rows:
            context.candidates = tuple(
                manager.suspend(_one(row))[0] for manager, row in zip(self.managers, context.rows, strict=True)
            )
            context.rows, context.goal = (), context.candidates[0].num_tokens

    def resume_request(self, request: Request) -> int:
        """Look a suspended request up again and return what it still has; ``resize_context`` then brings it back."""
        return self._position(self._context(request))

    def free_resources(self, request: Request) -> None:
        """End the request: what is final stays for reuse, everything else comes back. Idempotent."""
        context = self._contexts.get(request.request_id)
        if context is None:
            return
        _roll_back(context)
        for manager, row in zip(self.managers, context.rows, strict=False):
            manager.close(_one(row))
        del self._contexts[request.request_id]

    def _context(self, request: Request) -> _Context:
        context = self._contexts.get(request.request_id)
        if context is None:
            raise StateError(f"request {request.request_id!r} is not prepared")
        return context

    def _position(self, context: _Context) -> int:
        """Where its next step begins: the end of its last one, or the length that all caches can reuse."""
        if context.parts:
            return int(context.parts[0].starts[0])
        if context.rows:
            positions = {int(m.capacity[row]) for m, row in zip(self.managers, context.rows, strict=True)}
            if len(positions) > 1:
                raise StateError(f"the caches settled differently: {sorted(positions)}")
            return positions.pop()
        return self._agreed(context.candidates)

    def _agreed(self, candidates: tuple[Candidate, ...]) -> int:
        """Find the longest length that every cache can reuse; each look-up can only lower it."""
        for candidate in candidates:
            if candidate.reuse_limit is not None:
                candidate.limit_reuse(None)
        reused = [m.lookup(c) for m, c in zip(self.managers, candidates, strict=True)]
        while len(set(reused)) > 1:
            for candidate in candidates:
                candidate.limit_reuse(min(reused))
            reused = [m.lookup(c) for m, c in zip(self.managers, candidates, strict=True)]
        return reused[0]

    def _reserve(self, context: _Context, end: int, *, is_generation: bool) -> bool:
        """Reserve up to ``end`` instead of what is reserved; when that does not fit, put back what was."""
        if context.parts and context.end == end and context.is_generation == is_generation:
            return True
        before = (context.end, context.is_generation) if context.parts else None
        _roll_back(context)
        if self._open(context, end, is_generation=is_generation):
            return True
        if before is not None and not self._open(context, before[0], is_generation=before[1]):
            raise StateError("what was reserved does not fit any more: somebody else took pages meanwhile")
        return False

    def _open(self, context: _Context, end: int, *, is_generation: bool) -> bool:
        quotes: list[tuple[KVCacheManager, Quote]] = []
        for i, manager in enumerate(self.managers):
            quote = manager.quote()
            price = _price(quote, context, i)
            if not price(end):
                return False
            quotes.append((manager, quote))
        context.parts = reserve_all(quotes)
        context.end, context.is_generation = end, is_generation
        return True


def _price(quote: Quote, context: _Context, index: int) -> Callable[[int], bool]:
    if context.rows:
        row = context.rows[index]
        return lambda end: quote.add(_one(row), _one(end))
    candidate = context.candidates[index]
    return lambda end: quote.admit(candidate, end)


def _roll_back(context: _Context) -> None:
    for part in reversed(context.parts):
        if part.is_open:
            part.rollback()
    context.parts = ()


def _candidate(manager: KVCacheManager, request: Request) -> Candidate:
    return manager.candidate(
        request.prompt,
        reuse_scope(request),
        access=request.access,
        declared=request.declared,
    )


def _one(value: int) -> Int64Array:
    return np.array([value], dtype=np.int64)
