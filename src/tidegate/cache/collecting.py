"""Reads the counters of a cache."""

from __future__ import annotations

from tidegate.cache.core import CacheCore
from tidegate.cache.statistics import GroupStatistics, PoolStatistics, ScopeStatistics, Statistics


def collect_statistics(core: CacheCore) -> Statistics:
    """Return the counters as they are now."""
    counters = core.counters
    pools = tuple(
        PoolStatistics(
            slots=pool.num_slots,
            free=pool.num_free,
            evictable=pool.evictable,
            in_use=pool.num_slots - pool.num_free - pool.evictable,
            peak_in_use=pool.peak_in_use,
            pages_dropped=pool.num_dropped,
        )
        for pool in core.pools
    )
    groups = tuple(
        GroupStatistics(rows.owned, rows.peak_owned, int(rows.num_scratch.sum()), counters.scratch_blocks.get(group, 0))
        for group, rows in enumerate(core.rows)
    )
    return Statistics(
        pools=pools,
        groups=groups,
        match_unit=core.unit,
        query_tokens=counters.query_tokens,
        hit_tokens=counters.hit_tokens,
        partial_hit_tokens=counters.partial_hit_tokens,
        lost_to_granularity_tokens=counters.lost_to_granularity_tokens,
        requests=counters.requests,
        requests_without_match=counters.requests_without_match,
        rematched_tokens=counters.rematched_tokens,
        suspended=counters.suspended,
        resumed=counters.resumed,
        scopes={key: ScopeStatistics(*tally) for key, tally in counters.scopes.items()},
        other_scopes=ScopeStatistics(*counters.other_scopes),
        reserved=tuple(sum(r.num_pages[i] for r in core.open if r.is_undispatched) for i in range(len(pools))),
    )
