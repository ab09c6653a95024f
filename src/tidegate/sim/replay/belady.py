"""The most that any cache of a size could reuse: block-wise, prefix-closed, with bypass.

Belady's rule (1966) keeps what is used again soonest; a block that is not worth a place need not get one. A block is
never used again later than one behind it in the same text, so among those that are used again in the same request the
last goes first, and what stays is closed under prefixes. That also makes the rule cheap: the blocks kept for a request
lie side by side on its path, and only their number matters.

It is an upper bound, for every request may come and go without a place for its own pages. It is the best there is
except where a prompt ends exactly with a block: that block is made anew, and its next use before does not count.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from tidegate.base import Int64Array
from tidegate.sim.replay.paths import Paths


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Blocks that each request would reuse at best, int64 ``[n]``, in a cache of ``pool_blocks`` (None: endless)."""

    pool_blocks: int | None
    hit_blocks: Int64Array
    block_tokens: int
    prompt_tokens: int

    @property
    def hit_tokens(self) -> int:
        """Prompt tokens reused."""
        return int(self.hit_blocks.sum()) * self.block_tokens

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens reused."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def best_possible(paths: Paths, pool_blocks: tuple[int | None, ...]) -> tuple[Bound, ...]:
    """Return the bound for each cache size."""
    uses = _next_uses(paths)
    prompt_tokens = int(paths.num_prompt.sum())
    return tuple(Bound(size, _hits(uses, size), paths.block_tokens, prompt_tokens) for size in pool_blocks)


_Run = tuple[int, int]
"""A request that is the next to use so many blocks."""


def _next_uses(paths: Paths) -> list[list[_Run]]:
    """For each request, by which later requests the blocks that it leaves behind are used next."""
    next_use = np.zeros(paths.num_nodes + 1, np.int64)
    uses: list[list[_Run]] = [[]] * len(paths)
    for request in range(len(paths) - 1, -1, -1):
        nodes = paths.of(request)
        users, counts = np.unique(next_use[nodes], return_counts=True)
        uses[request] = [(user, n) for user, n in zip(users.tolist(), counts.tolist(), strict=True) if user > 0]
        next_use[nodes] = 0  # whatever this request makes anew need not be kept until then
        next_use[nodes[: paths.num_usable[request]]] = request
    return uses


def _hits(uses: list[list[_Run]], pool_blocks: int | None) -> Int64Array:
    """Blocks that are still there when their next user comes."""
    kept = [0] * len(uses)
    farthest: list[int] = []
    total = 0
    for request, runs in enumerate(uses):
        total -= kept[request]
        for user, count in runs:
            if not kept[user]:
                heapq.heappush(farthest, -user)
            kept[user] += count
            total += count
        while pool_blocks is not None and total > pool_blocks:
            user = -farthest[0]
            gone = min(kept[user], total - pool_blocks)
            kept[user] -= gone
            total -= gone
            if not kept[user]:
                heapq.heappop(farthest)
    return np.array(kept, np.int64)
