"""Policies against cache sizes: hit rates, and how much of what is possible they reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tidegate.report import Table
from tidegate.sim.replay.belady import Bound, best_possible
from tidegate.sim.replay.cached import CacheShape, ReplayResult, replay
from tidegate.sim.replay.paths import block_paths
from tidegate.sim.replay.spec import ReplaySpec
from tidegate.workload import Workload

BELADY = "belady"
LRU = "lru"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """One policy at one size (None: endless). ``gap_closed`` is the share of the way from LRU to Belady's bound.

    ``num_refused`` requests were longer than the cache is large; they count as reusing nothing.
    """

    policy: str
    pool_blocks: int | None
    hit_rate: float
    hit_rate_by_tier: dict[str, float]
    hit_tokens: int
    share_of_belady: float | None
    gap_closed: float | None
    num_refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTable:
    """All rows, by size and then by policy, the bound behind the policies. Equal replays give equal bytes."""

    source: str
    block_tokens: int
    num_requests: int
    prompt_tokens: int
    distinct_blocks: int
    rows: tuple[ReplayRow, ...]

    def row(self, policy: str, pool_blocks: int | None) -> ReplayRow:
        """Return one row; raises ``KeyError`` where there is none."""
        for row in self.rows:
            if (row.policy, row.pool_blocks) == (policy, pool_blocks):
                return row
        raise KeyError((policy, pool_blocks))

    def to_rows(self) -> list[dict[str, object]]:
        """Return plain rows for a CSV file; empty where there is no such number."""
        return [
            {
                "policy": row.policy,
                "pool_blocks": "endless" if row.pool_blocks is None else row.pool_blocks,
                "hit_rate": round(row.hit_rate, 6),
                **{f"hit_rate_{tier}": round(rate, 6) for tier, rate in row.hit_rate_by_tier.items()},
                "hit_tokens": row.hit_tokens,
                "share_of_belady": "" if row.share_of_belady is None else round(row.share_of_belady, 6),
                "gap_closed": "" if row.gap_closed is None else round(row.gap_closed, 6),
                "refused": row.num_refused,
            }
            for row in self.rows
        ]

    def to_json(self) -> str:
        """Return everything as JSON, sorted."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    def to_table(self) -> Table:
        """Return the rows for people, rates in per cent."""
        return Table(
            f"{self.source}: {self.num_requests:,} requests, blocks of {self.block_tokens} tokens",
            ("blocks", "policy", "hit rate %", "of Belady %", "gap closed %", "refused"),
            tuple(
                (
                    "endless" if row.pool_blocks is None else row.pool_blocks,
                    row.policy,
                    _percent(row.hit_rate),
                    _percent(row.share_of_belady),
                    _percent(row.gap_closed),
                    row.num_refused,
                )
                for row in self.rows
            ),
        )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def replay_table(
    workload: Workload, spec: ReplaySpec, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> ReplayTable:
    """Replay a workload with every policy at every size. ``on_progress(done, total)`` counts requests of all replays.

    The last row is what an endless cache would reuse.
    """
    paths = block_paths(workload, spec.block_tokens, with_outputs=spec.with_outputs)
    bounds = best_possible(paths, (*spec.pool_blocks, None))
    total = len(paths) * len(spec.pool_blocks) * len(spec.chosen)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)

    rows: list[ReplayRow] = []
    for size, bound in zip(spec.pool_blocks, bounds, strict=False):
        results = [
            replay(
                paths,
                CacheShape(pool_slots=(size,), eviction_policy=policy, concurrency=spec.concurrency),
                on_request=count,
            )
            for policy in spec.chosen
        ]
        lru = next((result.hit_rate for result in results if result.policy == LRU), None)
        rows += [_row(result, size, bound, lru) for result in results]
        rows.append(_bound_row(bound))
    rows.append(_bound_row(bounds[-1]))
    return ReplayTable(
        source=workload.source,
        block_tokens=spec.block_tokens,
        num_requests=len(paths),
        prompt_tokens=int(paths.num_prompt.sum()),
        distinct_blocks=paths.num_nodes,
        rows=tuple(rows),
    )


def _row(result: ReplayResult, size: int, bound: Bound, lru: float | None) -> ReplayRow:
    rate, best = result.hit_rate, bound.hit_rate
    return ReplayRow(
        policy=result.policy,
        pool_blocks=size,
        hit_rate=rate,
        hit_rate_by_tier=result.hit_rate_by_tier,
        hit_tokens=int(result.hit_tokens.sum()),
        share_of_belady=rate / best if best else None,
        gap_closed=None if lru is None or best <= lru else (rate - lru) / (best - lru),
        num_refused=result.num_refused,
    )


def _bound_row(bound: Bound) -> ReplayRow:
    rate = bound.hit_rate
    return ReplayRow(
        policy=BELADY,
        pool_blocks=bound.pool_blocks,
        hit_rate=rate,
        hit_rate_by_tier={"device": rate},
        hit_tokens=bound.hit_tokens,
        share_of_belady=1.0 if rate else None,
        gap_closed=None,
        num_refused=0,
    )
