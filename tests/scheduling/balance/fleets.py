"""Rows of whole fleets, written short or drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tidegate.base import Int64Array
from tidegate.scheduling import Column, rank_row


def fleet(*ranks: dict[str, int]) -> Int64Array:
    return np.stack([rank_row(**rank) for rank in ranks])


def counts(ctx: Sequence[int], gen: Sequence[int], pad: Sequence[int] | None = None) -> Int64Array:
    """Rows in which every prefill is a first chunk of 10 tokens."""
    pads = pad if pad is not None else [0] * len(ctx)
    return fleet(
        *(
            {
                "ctx": c,
                "first": c,
                "gen_real": g,
                "gen_pad": p,
                "ctx_tokens": 10 * c,
                "decode_tokens": g + p,
                "backlog_tokens": 10 * c,
                "waiting": c,
            }
            for c, g, p in zip(ctx, gen, pads, strict=True)
        )
    )


@st.composite
def rank_rows(draw: st.DrawFn) -> Int64Array:
    first, running = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    decodes, pad = draw(st.integers(0, 6)), draw(st.integers(0, 1))
    tokens = sum(draw(st.lists(st.integers(1, 8192), min_size=first + running, max_size=first + running)))
    return rank_row(
        ctx=first + running,
        first=first,
        gen_real=decodes,
        gen_pad=pad,
        ctx_tokens=tokens,
        decode_tokens=decodes + pad,
        backlog_tokens=tokens + draw(st.integers(0, 10**5)),
        waiting=first + draw(st.integers(0, 100)),
        finished=draw(st.integers(0, 3)),
        free_seats=draw(st.integers(0, 6)),
        last_step_us=draw(st.integers(0, 10**6)),
    )


def fleets(num_ranks: int) -> st.SearchStrategy[Int64Array]:
    return st.lists(rank_rows(), min_size=num_ranks, max_size=num_ranks).map(np.stack)


def runs_of_fleets(max_steps: int = 16) -> st.SearchStrategy[list[Int64Array]]:
    """Some steps of one fleet, each drawn anew."""
    return st.integers(1, 4).flatmap(lambda ranks: st.lists(fleets(ranks), min_size=1, max_size=max_steps))


def would_stand_still(rows: Int64Array) -> bool:
    """Whether nothing would run if no first chunk did."""
    return not any(row[Column.GEN_REAL] > 0 or row[Column.CTX] > row[Column.FIRST] for row in rows)
