"""What may happen to a cache, rule by rule: each draws its choices from a walk, acts, and updates the model.

A seeded walk and a Hypothesis state machine share these rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.base import InternalError, OutOfPages, StateError
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.choices import chance, one_of
from tidegate.testing.step_rules import execute, open_step, settle, stale_quote


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
    candidate = walk.manager.candidate(tokens, walk.scope, access=access, retention=choose(0, 2), declared=declared)
    walk.check_reuse(candidate)
    walk.check_unchanged(before, "a look-up")
    walk.waiting.append(candidate)


def rewind(walk: CacheWalk) -> None:
    """A sequence goes back to where its window still reaches."""
    running = one_of(walk.choose, [running for running in walk.idle if running.model.history])
    model = running.model
    is_promised = model.settled < model.history and chance(walk.choose, 50)
    history = walk.choose(model.settled if is_promised else max(0, model.settled - 12), model.history - 1)
    is_possible = model.can_rewind(history, walk.rules)
    published = min(model.history, len(model.tokens)) // walk.manager.match_unit * walk.manager.match_unit
    before = walk.observe()
    try:
        walk.driver.rewind(running.row, history)
    except StateError:
        if history >= model.settled and not walk.has_state:
            raise
        walk.check_unchanged(before, "a refused rewind")
        return
    if not is_possible:
        raise InternalError(f"row {running.row} went back to {history}, whose window is gone")
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
        walk.check_unchanged(before, "a refused fork")
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
    scope = walk.scope
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
        illegal = [h for h in range(model.history, model.steps[0][1]) if not model.can_settle(h, walk.rules)]
        if illegal:
            short = one_of(walk.choose, illegal)
            calls.append(lambda: walk.manager.advance(rows, np.array([short]), one))
    else:
        calls = [
            lambda: walk.manager.advance(rows, np.array([model.history + 1]), one),
            lambda: walk.manager.rewind(rows, np.array([-1])),
            lambda: walk.manager.rewind(rows, np.array([model.history + 1])),
        ]
    calls.append(lambda: walk.manager.quote().add(rows, np.array([model.capacity - 1])))
    try:
        one_of(walk.choose, calls)()
    except StateError:
        walk.check_unchanged(before, "a refused call")
        walk.counts["misused"] += 1
        return
    raise InternalError(f"a misuse of row {row} was not refused")


def _has_room(walk: CacheWalk) -> bool:
    return bool(walk.idle) and len(walk.driver.running) < walk.config.max_sequences


RULES: dict[str, Rule] = {
    "submit": Rule(10, lambda walk: len(walk.waiting) < 5, submit),
    "open_step": Rule(40, lambda walk: bool(walk.growable() or walk.waiting), open_step),
    "execute": Rule(30, lambda walk: any(not step.is_executed for step in walk.driver.open_steps), execute),
    "settle": Rule(26, lambda walk: bool(walk.driver.open_steps), settle),
    "rewind": Rule(20, lambda walk: any(running.model.history for running in walk.idle), rewind),
    "suspend": Rule(3, lambda walk: bool(walk.idle), suspend),
    "fork": Rule(12, _has_room, fork),
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
