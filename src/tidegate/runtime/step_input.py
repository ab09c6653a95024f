"""A step as the engine takes it: flat arrays of tokens, positions and tables."""

from __future__ import annotations

import numpy as np

from tidegate.base import GroupTables, Int64Array
from tidegate.cache import StepPages
from tidegate.engine import StepInput
from tidegate.request import RunningSequences
from tidegate.scheduling import Step


def engine_step(
    step: Step, pages: StepPages, sequences: RunningSequences, scored: Int64Array | None = None
) -> StepInput | None:
    """Lay a step out flat, without the sequences that ended since it was planned; None when none is left.

    Logits are asked for where a token is drawn and, behind those, at the flat places ``scored``.
    """
    places = np.flatnonzero(step.is_computed)
    if not len(places):
        return None
    groups = tuple(_made(tables, None if step.is_whole else places) for tables in pages.groups)
    rows, starts = step.rows[places], step.starts[places]
    lengths = step.ends[places] - starts
    cu_seqlens = np.zeros(len(places) + 1, dtype=np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    if len(places) == cu_seqlens[-1]:
        owners, positions = rows, starts
    else:
        owners = np.repeat(rows, lengths)
        positions = np.arange(cu_seqlens[-1], dtype=np.int64) + np.repeat(starts - cu_seqlens[:-1], lengths)
    logit_positions = cu_seqlens[1:][step.samples[places]].astype(np.int64) - 1
    return StepInput(
        token_ids=sequences.tokens[owners, positions].astype(np.int64),
        positions=positions,
        cu_seqlens=cu_seqlens,
        rows=rows,
        groups=groups,
        logit_positions=logit_positions if scored is None else np.concatenate([logit_positions, scored]),
    )


def _made(tables: GroupTables, places: Int64Array | None) -> GroupTables:
    """Make per-layer tables now, in the cache's thread; they go by place in the step, so only ``places`` stay."""
    made = tables.layer_tables
    if made is None or places is None:
        return tables
    return GroupTables(tables.slots, np.ascontiguousarray(made[:, places]))
