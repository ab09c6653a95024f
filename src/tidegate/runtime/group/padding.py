"""The padding entry: what a rank computes when it has nothing to run while others have.

Its pages and its row are taken when the rank is built and stay, so it can never be refused.
"""

from __future__ import annotations

import numpy as np

from tidegate.base import ConfigError
from tidegate.cache import KVCacheManager
from tidegate.engine import StepInput


def reserve_padding(manager: KVCacheManager) -> StepInput:
    """Take a row and its pages for one token that nobody reads, and return the step that computes it.

    To be called before anything else enters the cache; ``manager.plan`` then leaves those pages out. Raises
    ``ConfigError`` when the pools are too small for it.
    """
    before = manager.quote().supply
    quote = manager.quote()
    if not quote.admit(manager.candidate(np.zeros(1, np.int32), access="none"), 1):
        raise ConfigError(
            f"the pools are too small for the padding entry: short of {quote.shortage} pages per pool group",
            field="pool_slots",
        )
    with manager.reserve(quote) as reservation:
        pages = reservation.dispatch()
        reservation.keep()
    manager.advance(pages.rows, np.ones(1, np.int64), np.full(1, -1))
    after = manager.quote().supply
    manager.plan.set_aside(tuple(b - a for b, a in zip(before, after, strict=True)))
    return StepInput(
        token_ids=np.zeros(1, np.int64),
        positions=np.zeros(1, np.int64),
        cu_seqlens=np.array([0, 1], np.int32),
        rows=pages.rows,
        groups=pages.groups,
        logit_positions=np.zeros(1, np.int64),
    )
