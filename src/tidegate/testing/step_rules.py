"""What may happen to steps: priced, dispatched, given up at any point, executed late, settled short, refused."""

from __future__ import annotations

from tidegate.base import EngineError, InternalError, StateError
from tidegate.cache import Candidate
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.choices import chance, one_of, subset
from tidegate.testing.driver import OpenStep, Plan
from tidegate.testing.running import Running


class _Abandoned(Exception):
    """Raised inside a reservation, to see it roll back."""


def open_step(walk: CacheWalk) -> None:
    """Price a step, and dispatch it, or give it up at any point."""
    plan = _plan(walk)
    if plan is None:
        return
    fate = walk.choose(0, 19)
    if fate == 19:
        _abandon(walk, plan, "before dispatch")
    elif fate == 18:
        _abandon(walk, plan, "by an exception")
    elif fate == 17:
        _abort(walk, plan, is_run=False)
    elif fate == 16 and not any(not step.is_executed for step in walk.driver.open_steps):
        _abort(walk, plan, is_run=True)
    else:
        step, suspended = walk.driver.open(plan)
        _follow(walk, plan, step)
        walk.wait(suspended)


def _plan(walk: CacheWalk) -> Plan | None:
    choose = walk.choose
    growable = walk.growable()
    grow = [(running.row, _end(walk, running)) for running in subset(choose, growable, most=4)]
    rows_left = walk.config.max_sequences - len(walk.driver.running)
    admit = [(waiting, _first_end(walk, waiting)) for waiting in subset(choose, walk.waiting, most=min(rows_left, 2))]
    growing = {row for row, _ in grow}
    others = [running.row for running in walk.idle if running.row not in growing]
    suspend = subset(choose, others, most=2) if chance(choose, 10) else []
    if not grow and not admit:
        return None
    before = walk.observe()
    plan = walk.driver.plan(grow, admit, suspend)
    walk.counts["quoted"] += 1
    walk.counts["full"] += plan is None
    walk.check_unchanged(before, "a quote")
    return plan


def _end(walk: CacheWalk, running: Running) -> int:
    capacity, limit = running.model.capacity, walk.limit(running)
    return limit if chance(walk.choose, 40) else capacity + walk.choose(1, limit - capacity)


def _first_end(walk: CacheWalk, candidate: Candidate) -> int:
    reused, total = walk.manager.lookup(candidate), candidate.num_tokens
    return total if chance(walk.choose, 50) else reused + walk.choose(1, total - reused)


def _follow(walk: CacheWalk, plan: Plan, step: OpenStep) -> None:
    walk.see(step)
    walk.waiting = [candidate for candidate in walk.waiting if candidate not in plan.admitted]
    walk.counts["kept"] += 1
    walk.counts["victims"] += len(plan.victims)


def _abandon(walk: CacheWalk, plan: Plan, how: str) -> None:
    """Leave a reservation undispatched: everything must be as it was, evicted pages and victims included."""
    before = walk.observe()
    try:
        with walk.manager.reserve(plan.quote):
            if how == "by an exception":
                raise _Abandoned
    except _Abandoned:
        pass
    walk.check_unchanged(before, f"a roll-back {how}")
    walk.counts["rolled back"] += 1


def _abort(walk: CacheWalk, plan: Plan, *, is_run: bool) -> None:
    """Fail a dispatched step, before or in the middle of its forward: live sequences must be as they were."""
    rows = sorted(set(walk.driver.running) - set(plan.victims))
    is_run = is_run and not walk.has_state
    before = walk.observe_owned(rows) if rows else None
    suspended = []
    try:
        with walk.manager.reserve(plan.quote) as reservation:
            step = walk.driver.begin(reservation.dispatch(), reservation.admitted)
            # A device does things in order: what was dispatched before runs before the copies of this step.
            while any(not earlier.is_executed for earlier in walk.driver.open_steps):
                execute(walk)
            walk.manager.copy_pages(step.pages.copies)
            suspended = list(reservation.suspended)
            starts = step.pages.starts.tolist()
            if is_run and any(one.computed == begin for one, begin in zip(step.sequences, starts, strict=True)):
                walk.engine.fail_next()
                walk.driver.execute(step)
            raise _Abandoned
    except (_Abandoned, EngineError) as error:
        if isinstance(error, EngineError) and "as told" not in str(error):
            raise
    for row in plan.victims:
        del walk.driver.running[row]
    walk.wait(suspended)
    after = walk.observe_owned(rows) if rows else None
    if after != before:
        raise InternalError(f"an abort after dispatch changed a live sequence: {before} became {after}")
    walk.counts["aborted"] += 1


def execute(walk: CacheWalk) -> None:
    """The device gets to the oldest step it has not run."""
    step = next(step for step in walk.driver.open_steps if not step.is_executed)
    walk.driver.execute(step, [_drafts(walk, running, end) for running, end in _ends(step)])
    walk.counts["executed"] += 1


def _ends(step: OpenStep) -> list[tuple[Running, int]]:
    return list(zip(step.sequences, step.pages.ends.tolist(), strict=True))


def _drafts(walk: CacheWalk, running: Running, end: int) -> list[int]:
    """Guess what follows the context: right up to some point, then wrong."""
    missing = end - len(running.context)
    if missing <= 0:
        return []
    right = walk.engine.continuation(running.context, missing, running.salt)
    good = walk.choose(0, missing)
    return right[:good] + [(token + 1) % walk.engine.vocab_size for token in right[good:]]


def settle(walk: CacheWalk) -> None:
    """The oldest open step's output is known: accept all of it, less within the slack, or nothing."""
    step = walk.driver.open_steps[0]
    if not step.is_executed:
        can_drop = all(one.model.can_settle(one.model.history, walk.rules) for one in step.sequences)
        if can_drop and chance(walk.choose, 10):
            walk.driver.drop(step)
        else:
            execute(walk)
    furthest = walk.driver.acceptable(step)
    histories = [_history(walk, *pair) for pair in zip(step.sequences, furthest, strict=True)]
    walk.driver.settle(histories)
    walk.note_computed()
    walk.counts["settled"] += 1


def _history(walk: CacheWalk, running: Running, most: int) -> int:
    if walk.has_state or chance(walk.choose, 80):
        wanted = most
    else:
        wanted = walk.choose(running.model.history, most)
    return wanted if running.model.can_settle(wanted, walk.rules) else most


def stale_quote(walk: CacheWalk) -> None:
    """A quote made before something changed is refused."""
    running = one_of(walk.choose, walk.growable())
    stale = walk.driver.plan(grow=[(running.row, running.model.capacity + 1)])
    fresh = walk.driver.plan(grow=[(running.row, running.model.capacity + 1)])
    if stale is None or fresh is None:
        return
    step, _ = walk.driver.open(fresh)
    _follow(walk, fresh, step)
    before = walk.observe()
    try:
        walk.manager.reserve(stale.quote)
    except StateError:
        walk.check_unchanged(before, "a stale quote")
        walk.counts["stale quotes"] += 1
        return
    raise InternalError("a stale quote was accepted")
