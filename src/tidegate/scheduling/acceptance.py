"""Which drafts came true: a draft stays while it is the token that would have been drawn anyway."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int64Array
from tidegate.request import RunningSequences
from tidegate.scheduling.plan import Step


def accept_drafts(step: Step, drawn: Int64Array, sequences: RunningSequences) -> Int64Array:
    """Return what of ``drawn`` ``[n, m]`` a step with drafts keeps, -1 behind it: ``apply`` takes that.

    ``drawn[i, j]`` was drawn behind the first ``j`` drafts of row ``i``; -1 where nothing was. It counts if all those
    drafts equal what was drawn in their places, and no token before it ends the sequence.
    """
    assert step.drafts is not None
    drafts, num_drafts = step.drafts.tokens, step.drafts.counts
    is_right = (drawn[:, :-1] == drafts) & (np.arange(drafts.shape[1]) < num_drafts[:, None])
    num_new = 1 + np.logical_and.accumulate(is_right, axis=1).sum(axis=1)
    length = sequences.num_tokens[step.rows][:, None] + np.arange(1, drawn.shape[1] + 1)
    is_last = (sequences.stop_ids[step.rows][:, None, :] == drawn[:, :, None]).any(axis=2) & (drawn >= 0)
    is_last &= length >= sequences.min_length[step.rows][:, None]
    is_last |= length >= sequences.max_length[step.rows][:, None]
    num_new = np.where(is_last.any(axis=1), np.minimum(num_new, 1 + is_last.argmax(axis=1)), num_new)
    num_new[sequences.is_ended(step.rows)] = 0
    return np.where(np.arange(drawn.shape[1]) < num_new[:, None], drawn, -1)


def settle_points(step: Step, tokens: Int64Array, histories: Int64Array) -> Int64Array:
    """Return where rows settle: those with drafts behind their last accepted one, all others at ``histories``.

    A sequence that ended meanwhile accepts none.
    """
    assert step.drafts is not None
    num_new = np.maximum((tokens >= 0).sum(axis=1), 1)
    settled: Int64Array = np.where(step.drafts.counts > 0, step.starts + num_new, histories)
    return settled
