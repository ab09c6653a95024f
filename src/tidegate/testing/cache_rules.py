"""What may happen to a cache, rule by rule: each draws its choices from a walk, acts, and updates the model.

A seeded walk and a Hypothesis state machine share these rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.base import EngineError, InternalError, OutOfPages, StateError
from tidegate.cache import Candidate
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.choices import chance, one_of, subset
from tidegate.testing.driver import OpenStep, Plan
from tidegate.testing.running import Running


class _Abandoned(Exception):
    """Raised inside a reservation, to see it roll back."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of event: how often a random walk tries it, when it is possible, and what it does."""

    weight: int
    is_enabled: Callable[[CacheWalk], bool]
    act: Callable[[CacheWalk], None]


def submit(walk: CacheWalk) -> None:
    """A request comes; it owns nothing, and may reuse only what was computed in its scope."""
    choose = walk.choose
    access = one_of(choose, ("read_write", "read_write", "read_write", "read", "none"))
    tokens = walk.prompt()
    declared = (choose(1, len(tokens)),) if chance(choose, 30) else ()
    before = walk.observe()
    candidate = walk.manager.candidate(tokens, walk.scope(), access=access, retention=choose(0, 2), declared=declared)
    walk.check_reuse(candidate)
    _unchanged(walk, before, "a look-up")
    walk.waiting.append(candidate)


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
    _unchanged(walk, before, "a quote")
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
    _unchanged(walk, before, f"a roll-back {how}")
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


def rewind(walk: CacheWalk) -> None:
    """A sequence goes back to where its window still reaches."""
    running = one_of(walk.choose, [running for running in walk.idle if running.model.settled < running.model.history])
    model = running.model
    history = walk.choose(model.settled, model.history - 1)
    published = min(model.history, len(model.tokens)) // walk.manager.match_unit * walk.manager.match_unit
    before = walk.observe()
    try:
        walk.driver.rewind(running.row, history)
    except StateError:
        if not walk.has_state:
            raise
        _unchanged(walk, before, "a refused rewind")
        return
    walk.counts["rewound"] += 1
    walk.counts["rewound below published"] += history < published and walk.config.publish == "full_blocks"


def suspend(walk: CacheWalk) -> None:
    """A sequence gives everything back and waits again with all its tokens."""
    running = one_of(walk.choose, walk.idle)
    tokens = list(running.model.tokens)
    candidate = walk.driver.suspend(running.row)
    if candidate.tokens.tolist() != tokens:
        raise InternalError(f"suspended with {candidate.tokens.tolist()}, knew {tokens}")
    walk.wait([candidate])
    walk.counts["suspended"] += 1


def fork(walk: CacheWalk) -> None:
    """A sequence is continued twice."""
    before = walk.observe()
    try:
        walk.driver.fork(one_of(walk.choose, walk.idle).row)
    except OutOfPages:
        if not walk.has_state:
            raise
        _unchanged(walk, before, "a refused fork")
        return
    walk.counts["forked"] += 1


def close(walk: CacheWalk) -> None:
    """A sequence ends; the longest goes first, mostly."""
    idle = walk.idle
    longest = max(idle, key=lambda running: running.model.history)
    walk.driver.close((longest if chance(walk.choose, 70) else one_of(walk.choose, idle)).row)
    walk.counts["closed"] += 1


def stop_publishing(walk: CacheWalk) -> None:
    """What follows is not for others."""
    row = one_of(walk.choose, list(walk.driver.running))
    walk.manager.reuse.stop_publishing(np.array([row]))
    walk.counts["stopped publishing"] += 1


def forget(walk: CacheWalk) -> None:
    """Cached content is forgotten: all of it, a scope's, or because the weights changed."""
    what = walk.choose(0, 2)
    scope = walk.scope()
    if what == 0:
        walk.manager.reuse.clear()
    elif what == 1:
        walk.manager.reuse.invalidate(scope)
    else:
        walk.manager.reuse.new_weights_epoch()
        walk.driver.weights_epoch += 1
    for candidate in walk.waiting:
        if what != 1 or candidate.scope == scope:
            found = walk.manager.probe(candidate.tokens, candidate.scope).reused
            if found:
                raise InternalError(f"{found} tokens are reusable right after they were forgotten")
    walk.counts["forgot"] += 1


def give_up_waiting(walk: CacheWalk) -> None:
    """A waiting request is cancelled; nothing needs to be told."""
    walk.waiting.pop(walk.choose(0, len(walk.waiting) - 1))


def misuse(walk: CacheWalk) -> None:
    """A call that does not suit the state is refused and changes nothing."""
    before = walk.observe()
    row = one_of(walk.choose, list(walk.driver.running))
    model = walk.driver.running[row].model
    rows, one = np.array([row]), np.array([-1])
    if model.steps:
        calls: list[Callable[[], object]] = [
            lambda: walk.manager.advance(rows, np.array([model.steps[0][1] + 1]), one),
            lambda: walk.manager.advance(rows, np.array([model.history - 1]), one),
            lambda: walk.manager.rewind(rows, np.array([model.history])),
            lambda: walk.manager.close(rows),
            lambda: walk.manager.fork(row),
        ]
    else:
        calls = [
            lambda: walk.manager.advance(rows, np.array([model.history + 1]), one),
            lambda: walk.manager.rewind(rows, np.array([model.settled - 1])),
            lambda: walk.manager.rewind(rows, np.array([model.history + 1])),
        ]
    calls.append(lambda: walk.manager.quote().add(rows, np.array([model.capacity - 1])))
    try:
        one_of(walk.choose, calls)()
    except StateError:
        _unchanged(walk, before, "a refused call")
        walk.counts["misused"] += 1
        return
    raise InternalError(f"a misuse of row {row} was not refused")


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
        _unchanged(walk, before, "a stale quote")
        walk.counts["stale quotes"] += 1
        return
    raise InternalError("a stale quote was accepted")


def _unchanged(walk: CacheWalk, before: tuple[object, ...], what: str) -> None:
    after = walk.observe()
    if after != before:
        raise InternalError(f"{what} changed the cache: {before} became {after}")


def _has_room(walk: CacheWalk) -> bool:
    return bool(walk.idle) and len(walk.driver.running) < walk.config.max_sequences


RULES: dict[str, Rule] = {
    "submit": Rule(10, lambda walk: len(walk.waiting) < 5, submit),
    "open_step": Rule(40, lambda walk: bool(walk.growable() or walk.waiting), open_step),
    "execute": Rule(30, lambda walk: any(not step.is_executed for step in walk.driver.open_steps), execute),
    "settle": Rule(26, lambda walk: bool(walk.driver.open_steps), settle),
    "rewind": Rule(20, lambda walk: any(r.model.settled < r.model.history for r in walk.idle), rewind),
    "suspend": Rule(3, lambda walk: bool(walk.idle), suspend),
    "fork": Rule(8, _has_room, fork),
    "close": Rule(5, lambda walk: bool(walk.idle), close),
    "stop_publishing": Rule(1, lambda walk: bool(walk.driver.running), stop_publishing),
    "forget": Rule(1, lambda walk: True, forget),
    "give_up_waiting": Rule(1, lambda walk: bool(walk.waiting), give_up_waiting),
    "misuse": Rule(2, lambda walk: bool(walk.driver.running), misuse),
    "stale_quote": Rule(1, lambda walk: bool(walk.growable()), stale_quote),
}
"""Every kind of event, by name."""


def take_steps(walk: CacheWalk, count: int) -> None:
    """Let a walk take ``count`` random events, and check everything after each."""
    names = list(RULES)
    tickets = [name for name in names for _ in range(RULES[name].weight)]
    done = 0
    while done < count:
        rule = RULES[one_of(walk.choose, tickets)]
        if rule.is_enabled(walk):
            rule.act(walk)
            walk.check()
            done += 1
    walk.counts["steps"] += count
