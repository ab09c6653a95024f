"""One sequence's move from one set of cursors to another, and the pages it takes and gives.

Pure: a ``Move`` is computed from cursors and page columns, and changes nothing. The reservation applies it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidegate.base import Retention
from tidegate.cache.candidate import Candidate
from tidegate.cache.ranges import OpenStep, Range, ceil_div, live, scratch_need, subtract
from tidegate.cache.sequences import Cursors, SequenceTable
from tidegate.cache.tables import GroupRows

GroupRun = tuple[int, Range]
"""A group id and a run of its blocks."""


@dataclass(slots=True)
class Move:
    """``row`` goes to ``cursors``. ``acquire``/``release`` are runs of blocks, ``copies`` blocks to replace by a
    private copy, ``scratch`` changes in scratch slots, ``snapshots`` the state groups that copy their page after it.

    ``row`` is -1 until a candidate gets one; its match gives the pages it starts with. ``old`` is where the row stands.
    """

    row: int
    cursors: Cursors
    old: Cursors | None = None
    acquire: list[GroupRun] = field(default_factory=list)
    release: list[GroupRun] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    scratch: list[tuple[int, int]] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    candidate: Candidate | None = None

    @property
    def start(self) -> int:
        """First position the planned step computes."""
        return self.cursors.steps[-1].begin if self.cursors.steps else self.cursors.history

    @property
    def end(self) -> int:
        """The last cursor."""
        return self.cursors.capacity

    def needs(self, rows: list[GroupRows], num_pool_groups: int) -> list[int]:
        """Fresh pages per pool group."""
        needs = [0] * num_pool_groups
        for group, (begin, end) in self.acquire:
            needs[rows[group].group.pool_group] += end - begin
        for group, _ in self.copies:
            needs[rows[group].group.pool_group] += 1
        for group, change in self.scratch:
            needs[rows[group].group.pool_group] += max(change, 0)
        for group in self.snapshots:
            needs[rows[group].group.pool_group] += 1
        return needs


class Mover:
    """Computes moves."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable, checkpoint_every: int, unit: int) -> None:
        self._rows = rows
        self._sequences = sequences
        self._every = checkpoint_every
        self._unit = unit
        self._has_state = any(r.group.retention is Retention.STATE for r in rows)
        self.declared: dict[int, frozenset[int]] = {}
        """Lengths of running sequences at which a checkpoint is wanted, however near the last one is."""

    def extend(self, row: int, capacity: int) -> Move:
        """Append an open step that ends at ``capacity``."""
        old = self._sequences.cursors(row)
        steps = [*old.steps, OpenStep(old.capacity, capacity)]
        return self.complete(Move(row, Cursors(old.history, old.settled, steps), old))

    def retarget(self, row: int, capacity: int) -> Move:
        """Move the end of the planned step to ``capacity``; at its start it ceases to be."""
        old = self._sequences.cursors(row)
        planned = old.steps[-1]._replace(end=capacity)
        steps = [*old.steps[:-1], planned] if capacity > planned.begin else old.steps[:-1]
        return self.complete(Move(row, Cursors(old.history, old.settled, steps), old))

    def complete(self, move: Move) -> Move:
        """Fill in what ``move`` takes and gives, from the row's cursors to the ones it states."""
        self.diff(move)
        if move.cursors.steps:
            self._private_writes(move)
            declared = self.declared.get(move.row, frozenset())
            self._plan_snapshots(move, int(self._sequences.prompt_len[move.row]), declared)
        return move

    def diff(self, move: Move) -> None:
        """Fill in the blocks and scratch slots by which the new cursors differ from the row's."""
        old, new = move.old or self._sequences.cursors(move.row), move.cursors
        for group, rows in enumerate(self._rows):
            rule = rows.group.rule
            if rule.window is None:
                before = ceil_div(old.capacity, rule.block_tokens)
                after = ceil_div(new.capacity, rule.block_tokens)
                if after > before:
                    move.acquire.append((group, (before, after)))
                elif after < before:
                    move.release.append((group, (after, before)))
                continue
            old_runs = live(old.settled, old.capacity, old.steps, rule)
            new_runs = live(new.settled, new.capacity, new.steps, rule)
            move.acquire.extend((group, run) for run in subtract(new_runs, old_runs))
            move.release.extend((group, run) for run in subtract(old_runs, new_runs))
            if rule.scratch_per_slot:
                change = scratch_need(new.steps, rule) - int(rows.num_scratch[move.row])
                if change:
                    move.scratch.append((group, change))

    def admit(self, candidate: Candidate, capacity: int) -> Move:
        """Start a sequence at its match, its first step ending at ``capacity``."""
        match = candidate.match
        history = match.reused
        steps = [OpenStep(history, capacity)] if capacity > history else []
        move = Move(-1, Cursors(history, history, steps), candidate=candidate)
        for group, rows in enumerate(self._rows):
            rule = rows.group.rule
            have = [(first, first + len(pages)) for first, pages in match.held[group]] if match.held else []
            runs = live(history, capacity, steps, rule)
            move.acquire.extend((group, run) for run in subtract(runs, have))
            need = scratch_need(steps, rule)
            if need:
                move.scratch.append((group, need))
            if steps and history % rule.block_tokens:
                move.copies.append((group, history // rule.block_tokens))
        if steps:
            self._plan_snapshots(move, candidate.num_tokens, candidate.declared)
        return move

    def _private_writes(self, move: Move) -> None:
        """A page in the write range that others see is replaced by a copy; only the first block can be one."""
        move.copies.extend(self.shared_blocks(move.row, move.start))

    def shared_blocks(self, row: int, start: int) -> list[tuple[int, int]]:
        """Groups and blocks in which ``start`` falls inside a page that others see too."""
        shared = []
        for group, rows in enumerate(self._rows):
            block, inside = divmod(start, rows.block_tokens)
            page = rows.pages[row, block] if inside else -1
            if page >= 0 and (rows.pool.locks[page] > 1 or rows.pool.refs[page] > 0):
                shared.append((group, block))
        return shared

    def _plan_snapshots(self, move: Move, prompt_len: int, declared: Collection[int]) -> None:
        """A prefill chunk whose end becomes a checkpoint copies each state page there."""
        end = move.end
        if not self._has_state or end > prompt_len or end % self._unit:
            return
        last = int(self._sequences.last_checkpoint[move.row]) if move.row >= 0 else move.cursors.history
        if (self._every and end - last >= self._every) or end in declared:
            move.snapshots.extend(
                group for group, rows in enumerate(self._rows) if rows.group.retention is Retention.STATE
            )
