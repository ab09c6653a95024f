"""Ends and copies of sequences, and the counters."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int64Array, OutOfPages, Retention
from tidegate.cache.core import CacheCore
from tidegate.cache.sequences import Mode
from tidegate.cache.statistics import GroupStatistics, PoolStatistics, ScopeStatistics, Statistics


class Finisher:
    """Closes and forks rows."""

    def __init__(self, core: CacheCore) -> None:
        self._core = core

    def finish(self, rows: Int64Array) -> None:
        """Publish and give back everything of these rows."""
        for row in rows.tolist():
            self._core.publisher.finish(row)
            self._core.drop_sequence(row)

    def fork(self, row: int) -> int:
        """Return a new row that shares every page of ``row``; its state pages are copied."""
        core, sequences = self._core, self._core.sequences
        core.publisher.close_leaf(row)
        state = [r for r in core.rows if r.group.retention is Retention.STATE and r.pages[row, 0] >= 0]
        for rows in state:
            if rows.pool.num_free < len(state):
                raise OutOfPages(
                    f"fork needs {len(state)} free state slots", needed=len(state), free=rows.pool.num_free
                )
        new = sequences.take_row()
        for column in (
            "history", "settled", "capacity", "known", "prompt_len", "published", "next_publish", "publish_limit",
            "next_stale", "event", "last_checkpoint", "retention", "tokens",
        ):  # fmt: skip
            array = getattr(sequences, column)
            array[new] = array[row]
        sequences.mode[new] = Mode.READY
        sequences.num_open[new] = 0
        sequences.attach[new] = sequences.attach[row]
        sequences.border[[row, new]] = -1
        core.scopes[new] = core.scopes[row]
        if row in core.publisher.declared:
            core.publisher.declared[new] = core.publisher.declared[row]
        if row in core.publisher.at_end:
            core.publisher.at_end.add(new)
        for rows in core.rows:
            pages = rows.pages[row]
            if rows in state:
                page = rows.pool.acquire(rows.pool.storage.free.take(1))
                rows.pool.storage.copy(rows.pool.slot[pages[:1]], rows.pool.slot[page])
                rows.put_run(new, (0, 1), page)
                continue
            owned = np.flatnonzero(pages >= 0)
            rows.pool.lock(pages[owned])
            rows.pages[new], rows.slots[new] = pages, rows.slots[row]
            rows.owned += len(owned)
        return new

    def statistics(self) -> Statistics:
        """Return the counters as they are now."""
        core, counters = self._core, self._core.counters
        pools = tuple(
            PoolStatistics(
                slots=pool.num_slots,
                free=pool.num_free,
                evictable=pool.evictable,
                in_use=pool.num_slots - pool.num_free - pool.evictable,
                peak_in_use=pool.peaks.in_use,
                pages_dropped=pool.peaks.dropped,
            )
            for pool in core.pools
        )
        groups = tuple(
            GroupStatistics(
                rows.owned, rows.peak_owned, int(rows.num_scratch.sum()), counters.scratch_blocks.get(group, 0)
            )
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
        )
