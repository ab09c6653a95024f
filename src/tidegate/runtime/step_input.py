"""A step as the engine takes it: flat arrays of tokens, positions and tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import GroupTables, Int64Array
from tidegate.cache import StepPages
from tidegate.engine import StepInput
from tidegate.request import RunningSequences
from tidegate.scheduling import Step


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """What a step draws, in the order of its logits: draw ``i`` is for the sequence at ``places[i]`` in the step.

    With drafts a sequence draws behind each of them too, and ``ahead[i]`` of them stand before; else it is None.
    """

    places: Int64Array
    ahead: Int64Array | None = None

    def grid(self, step: Step, tokens: Int64Array) -> Int64Array:
        """Return drawn tokens by sequence, ``[n]`` or, with drafts, ``[n, m]``; -1 where none was drawn."""
        if self.ahead is None or step.drafts is None:
            drawn = np.full(len(step.rows), -1, dtype=np.int64)
            drawn[self.places] = tokens
            return drawn
        drawn = np.full((len(step.rows), 1 + step.drafts.tokens.shape[1]), -1, dtype=np.int64)
        drawn[self.places, self.ahead] = tokens
        return drawn


def draws_of(step: Step) -> Draws:
    """Return what a step draws."""
    places = np.flatnonzero(step.samples)
    if step.drafts is None:
        return Draws(places)
    counts = 1 + step.drafts.counts[places]
    return Draws(np.repeat(places, counts), _places_within(counts))


def engine_step(
    step: Step, pages: StepPages, sequences: RunningSequences, scored: Int64Array | None = None
) -> StepInput | None:
    """Lay a step out flat, without the sequences that ended since it was planned; None when none is left.

    Logits are asked for where a token is drawn (``draws_of``) and, behind those, at the flat places ``scored``.
    """
    if step.is_whole and step.samples_all and step.drafts is None and scored is None:
        lengths = step.ends - step.starts
        if len(lengths) and np.count_nonzero(lengths != 1) == 0:
            return _one_token_each(step, pages, sequences)
    places = np.flatnonzero(step.is_computed)
    if not len(places):
        return None
    groups = tuple(_made(tables, None if step.is_whole else places) for tables in pages.groups)
    rows, starts = step.rows[places], step.starts[places]
    lengths = step.ends[places] - starts
    cu_seqlens = np.zeros(len(places) + 1, dtype=np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    owners = np.repeat(rows, lengths)
    positions = np.arange(cu_seqlens[-1], dtype=np.int64) + np.repeat(starts - cu_seqlens[:-1], lengths)
    token_ids = sequences.tokens[owners, positions].astype(np.int64)
    logit_positions = cu_seqlens[1:][step.samples[places]].astype(np.int64) - 1
    if step.drafts is not None:
        tokens, counts = step.drafts.tokens[places], step.drafts.counts[places]
        behind = _places_within(counts)
        token_ids[np.repeat(cu_seqlens[1:] - counts, counts) + behind] = tokens[tokens >= 0]
        counts = counts[step.samples[places]]
        logit_positions = np.repeat(logit_positions - counts, 1 + counts) + _places_within(1 + counts)
    return StepInput(
        token_ids=token_ids,
        positions=positions,
        cu_seqlens=cu_seqlens,
        rows=rows,
        groups=groups,
        logit_positions=logit_positions if scored is None else np.concatenate([logit_positions, scored]),
    )


def _one_token_each(step: Step, pages: StepPages, sequences: RunningSequences) -> StepInput:
    """Lay out a step in which each sequence computes its last known token, without looking at contexts."""
    count = len(step.rows)
    return StepInput(
        token_ids=sequences.last_token[step.rows],
        positions=step.starts,
        cu_seqlens=np.arange(count + 1, dtype=np.int32),
        rows=step.rows,
        groups=tuple(_made(tables, None) for tables in pages.groups),
        logit_positions=np.arange(count),
    )


def _places_within(counts: Int64Array) -> Int64Array:
    """Return 0, 1, … for each run of ``counts[i]``, end to end."""
    places: Int64Array = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _made(tables: GroupTables, places: Int64Array | None) -> GroupTables:
    """Make per-layer tables now, in the cache's thread; they go by place in the step, so only ``places`` stay."""
    made = tables.layer_tables
    if made is None or places is None:
        return tables
    return GroupTables(tables.slots, np.ascontiguousarray(made[:, places]))
