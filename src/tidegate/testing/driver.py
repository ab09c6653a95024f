"""A small step loop over a real manager and a fake engine: what a runtime does, with every step in the caller's hand.

A dispatched step may be executed any time before it settles, in order, as on a device that runs behind its host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.base import Int32Array
from tidegate.cache import Candidate, KVCacheManager, Quote, ReuseScope, StepPages
from tidegate.engine import GroupTables, StepInput
from tidegate.testing.cache_model import ModelSequence
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.running import Running

Growth = tuple[int, int]
"""A row and where its next step ends."""
Admission = tuple[Candidate, int]
"""A waiting request and where its first step ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A priced step and what it was asked for."""

    quote: Quote
    admitted: tuple[Candidate, ...]
    victims: tuple[int, ...]


@dataclass(slots=True)
class OpenStep:
    """A dispatched step. Executing it fills in where each sequence began and how far it may settle."""

    pages: StepPages
    sequences: list[Running]
    begun: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    is_executed: bool = False


class StepDriver:
    """Runs steps of one manager on one fake engine, greedily, and knows what every row should contain.

    ``declares`` tells the engine so, too; without, the engine believes the cache, as it would in a runtime.
    """

    def __init__(self, manager: KVCacheManager, engine: FakeEngine, *, declares: bool = True) -> None:
        self.manager = manager
        self.engine = engine
        self.running: dict[int, Running] = {}
        self.open_steps: list[OpenStep] = []
        self.arenas: tuple[Int32Array, ...] = ()
        self.weights_epoch = 0
        self._declares = declares
        self._salts: dict[tuple[ReuseScope, int], int] = {}
        engine.bind(manager.layout, manager.pools)

    def salt_of(self, scope: ReuseScope) -> int:
        """Return the number that sets this scope's content, under the present weights, apart from all other."""
        return self._salts.setdefault((scope, self.weights_epoch), len(self._salts))

    def plan(
        self, grow: Sequence[Growth] = (), admit: Sequence[Admission] = (), suspend: Sequence[int] = ()
    ) -> Plan | None:
        """Price a step; None when it does not fit."""
        quote = self.manager.quote()
        if suspend:
            quote.suspend(np.array(suspend, dtype=np.int64))
        if grow:
            rows, ends = (np.array(column, dtype=np.int64) for column in zip(*grow, strict=True))
            if not quote.add(rows, ends):
                return None
        if not all(quote.admit(candidate, end) for candidate, end in admit):
            return None
        return Plan(quote, tuple(candidate for candidate, _ in admit), tuple(suspend))

    def open(self, plan: Plan) -> tuple[OpenStep, list[Candidate]]:
        """Reserve, dispatch and keep a priced step; return it and the sequences it suspended."""
        with self.manager.reserve(plan.quote) as reservation:
            step = self.begin(reservation.dispatch(), reservation.admitted)
            reservation.keep()
        for row in plan.victims:
            del self.running[row]
        for sequence, end in zip(step.sequences, step.pages.ends.tolist(), strict=True):
            sequence.model.open(end)
            self.running[sequence.row] = sequence
        self.open_steps.append(step)
        return step, list(reservation.suspended)

    def begin(self, pages: StepPages, admitted: Sequence[tuple[Candidate, int]]) -> OpenStep:
        """Return a dispatched step with its new sequences declared to the engine; nothing else changes."""
        starts = dict(zip(pages.rows.tolist(), pages.starts.tolist(), strict=True))
        fresh = {}
        for candidate, row in admitted:
            tokens = [int(token) for token in candidate.tokens]
            rewind = self.manager.config.max_rewind_len
            model = ModelSequence(tokens, len(tokens), starts[int(row)], rewind)
            fresh[int(row)] = Running(int(row), candidate.scope, self.salt_of(candidate.scope), model)
            if self._declares:
                self.engine.declare(int(row), tokens[: model.history], fresh[int(row)].salt)
        self.arenas = tuple(tables.slots for tables in pages.groups)
        return OpenStep(pages, [fresh.get(row) or self.running[row] for row in pages.rows.tolist()])

    def execute(self, step: OpenStep, drafts: Sequence[Sequence[int]] = ()) -> None:
        """Run one step: copies, forward, snapshots. A sequence whose context was cut since dispatch sits it out."""
        self.manager.copy_pages(step.pages.copies)
        starts, ends = step.pages.starts.tolist(), step.pages.ends.tolist()
        step.begun = [sequence.computed for sequence in step.sequences]
        step.accepted = list(step.begun)
        places = [i for i, begun in enumerate(step.begun) if begun == starts[i]]
        given = drafts or [()] * len(starts)
        texts = [step.sequences[i].inputs(starts[i], ends[i], given[i]) for i in places]
        if places:
            outputs = self._forward(step.pages, places, starts, texts)
            for i, text, after in zip(places, texts, outputs, strict=True):
                step.accepted[i] = step.sequences[i].accept(starts[i], text, after)
        self.manager.copy_pages(step.pages.snapshots)
        step.is_executed = True

    def drop(self, step: OpenStep) -> None:
        """Give a dispatched step up before the engine has run it; its copies still happen."""
        self.manager.copy_pages(step.pages.copies)
        step.begun = [sequence.computed for sequence in step.sequences]
        step.accepted = list(step.begun)
        step.is_executed = True

    def _forward(
        self, pages: StepPages, places: Sequence[int], starts: Sequence[int], texts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Return the greedy token after each input token."""
        lengths = [len(text) for text in texts]
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        positions = [np.arange(starts[i], starts[i] + n) for i, n in zip(places, lengths, strict=True)]
        step = StepInput(
            token_ids=np.array([token for text in texts for token in text], dtype=np.int64),
            positions=np.concatenate(positions),
            cu_seqlens=cu_seqlens.astype(np.int32),
            rows=pages.rows[list(places)],
            groups=tuple(_subset(tables, places) for tables in pages.groups),
            logit_positions=np.arange(cu_seqlens[-1]),
        )
        after = self.engine.forward(step).argmax(axis=1)
        return [part.tolist() for part in np.split(after, cu_seqlens[1:-1])]

    def settle(self, histories: Sequence[int] | None = None) -> None:
        """Settle the oldest open step where it was accepted, or earlier where told."""
        step = self.open_steps.pop(0)
        wanted = self.acceptable(step) if histories is None else list(histories)
        fresh = [
            sequence.settle(history, accepted)
            for sequence, history, accepted in zip(step.sequences, wanted, step.accepted, strict=True)
        ]
        tokens = np.full((len(fresh), max(1, *map(len, fresh))), -1, dtype=np.int32)
        for line, known in zip(tokens, fresh, strict=True):
            line[: len(known)] = known
        self.manager.advance(step.pages.rows, np.array(wanted, dtype=np.int64), tokens)

    def acceptable(self, step: OpenStep) -> list[int]:
        """Return the furthest histories the oldest open step may settle at; where it began if it did not count."""
        return [
            accepted if begun == sequence.model.history else sequence.model.history
            for sequence, begun, accepted in zip(step.sequences, step.begun, step.accepted, strict=True)
        ]

    def rewind(self, row: int, history: int) -> None:
        """Go back; the prompt and the next token to compute stay known."""
        model = self.running[row].model
        known = max(history + 1, model.num_prompt)
        self.manager.rewind(np.array([row]), np.array([history]), np.array([known]))
        model.rewind(history)
        self.running[row].cut()

    def fork(self, row: int) -> int:
        """Fork once and return the new row."""
        source = self.running[row]
        child = int(self.manager.fork(row)[0])
        model = replace(source.model, tokens=list(source.model.tokens), steps=[])
        model.settled = source.model.settled
        self.running[child] = Running(child, source.scope, source.salt, model)
        if self._declares:
            self.engine.declare(child, model.tokens[: model.history], source.salt)
        return child

    def close(self, row: int) -> None:
        """Finish a sequence."""
        self.manager.close(np.array([row]))
        del self.running[row]

    def suspend(self, row: int) -> Candidate:
        """Give a sequence's pages back and return it as a waiting request."""
        (candidate,) = self.manager.suspend(np.array([row]))
        del self.running[row]
        return candidate


def _subset(tables: GroupTables, places: Sequence[int]) -> GroupTables:
    """Return the tables of some of a step's sequences."""
    if tables.layer_tables is None:
        return tables
    return GroupTables(tables.slots, tables.layer_tables[:, list(places)])
