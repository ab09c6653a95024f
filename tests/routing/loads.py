"""Loads and requests in a line each."""

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int64Array
from tidegate.request import Request, token_array
from tidegate.routing import RankLoads

MANY = 1000


def ask(
    request_id: str, length: int, *, rank: int | None = None, strict: bool = False, conversation: str | None = None
) -> Request:
    """A request of ``length`` tokens."""
    return Request(
        request_id=request_id,
        prompt=token_array([1] * length),
        attention_dp_rank=rank,
        attention_dp_relax=not strict,
        conversation_id=conversation,
    )


def idle(num_ranks: int, limit: int = MANY) -> RankLoads:
    """Ranks with nothing to do."""
    return busy([0] * num_ranks, limits=[limit] * num_ranks)


def busy(
    live: Sequence[int],
    *,
    prefill: Sequence[int] = (),
    decode: Sequence[int] = (),
    retiring: Sequence[int] = (),
    limits: Sequence[int] = (),
) -> RankLoads:
    """Ranks with so much to do; what is left out is 0, and limits do not matter."""
    zeros = [0] * len(live)
    return RankLoads(
        num_live=int64(live),
        num_retiring=int64(retiring or zeros),
        prefill_tokens=int64(prefill or zeros),
        decode_tokens=int64(decode or zeros),
        max_requests=int64(limits or [MANY] * len(live)),
    )


def int64(values: Sequence[int] | Sequence[Sequence[int]]) -> Int64Array:
    """An int64 array."""
    return np.array(values, dtype=np.int64)
