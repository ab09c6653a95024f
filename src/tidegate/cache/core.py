"""The cache's state and how its parts are wired. ``KVCacheManager`` is the door in front of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.base import ConfigError, GroupTables, Int64Array, Retention, StateError, WrongThread
from tidegate.cache.advance import Settler
from tidegate.cache.candidate import Candidate
from tidegate.cache.config import KVCacheConfig
from tidegate.cache.door import position
from tidegate.cache.groups import Grouping, GroupingOptions, plan_groups
from tidegate.cache.lender import Lender
from tidegate.cache.lives import Lives
from tidegate.cache.moves import Mover
from tidegate.cache.pages import PagePool
from tidegate.cache.prefix import NO_MATCH, Matcher
from tidegate.cache.pruning import TreePruner
from tidegate.cache.publishing import Publisher
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.ranges import Range, scratch
from tidegate.cache.rewinding import Rewinder
from tidegate.cache.sequences import SequenceTable
from tidegate.cache.sizing import match_unit, split_quota
from tidegate.cache.statistics import Counters
from tidegate.cache.step_pages import PageCopies
from tidegate.cache.tables import GroupRows
from tidegate.cache.views import CsrTables, csr, per_layer
from tidegate.storage import PoolGroup, PoolGroupSpec, policy_maker

if TYPE_CHECKING:
    from tidegate.cache.reservation import Reservation


class CacheCore:
    """State and collaborators; implements what quotes and reservations ask for."""

    def __init__(self, config: KVCacheConfig, *, with_memory: bool) -> None:
        self.config = config
        self._thread = threading.get_ident()
        options = GroupingOptions(
            config.tokens_per_block, config.max_rewind_len, config.swa_scratch_reuse, config.separate_pools
        )
        self.grouping: Grouping = plan_groups(config.layers, options)
        self.num_pool_groups = self.grouping.num_pool_groups
        _check_settings(config, self.grouping)
        slots = split_quota(config, self.grouping)
        _check_sub_pages(slots, self.grouping)
        self.storage: list[PoolGroup] = []
        self.pools: list[PagePool] = []
        for pool_group in range(self.num_pool_groups):
            row_bytes = next(g.row_bytes for g in self.grouping.groups if g.pool_group == pool_group)
            group = PoolGroup(PoolGroupSpec(slots[pool_group], row_bytes), with_memory=with_memory)
            self.storage.append(group)
            self.pools.append(PagePool(group, policy_maker(config.eviction_policy)))
        self.rows = [
            GroupRows(group, self.pools[group.pool_group], config.max_sequences, config.max_seq_len)
            for group in self.grouping.groups
        ]
        smallest_block = min(group.block_tokens for group in self.grouping.groups)
        self.sequences = SequenceTable(
            config.max_sequences,
            config.max_seq_len,
            config.max_open_steps,
            smallest_block,
            config.max_rewind_len,
        )
        self.unit = match_unit(config, self.grouping.groups)
        self.tree = RadixTree(self.rows, self.sequences, self.unit)
        self.pruner = TreePruner(self.tree)
        self.matcher = Matcher(self.tree, partial=config.enable_partial_reuse)
        every = config.checkpoint_every if config.publishes else 0
        self.mover = Mover(self.rows, self.sequences, every, self.unit)
        self.publisher = Publisher(self.pruner, self.sequences, every, tails=config.enable_partial_reuse)
        self.publisher.declared = self.mover.declared
        self.pending_snapshots = self.publisher.pending_snapshots
        self.settler = Settler(self.rows, self.sequences, self.mover, self.publisher)
        self.rewinder = Rewinder(self.settler)
        self.counters = Counters()
        self.open: list[Reservation] = []
        self.plain_growth = self._plain_growth()
        growing = [g for g in self.grouping.groups if g.retention is not Retention.STATE]
        self.growing_groups = [sum(g.pool_group == p for g in growing) for p in range(self.num_pool_groups)]
        one_block = -1
        if all(g.block_tokens == smallest_block for g in growing):
            # A row is less than a block below its border, so this much above it is still a plain step.
            one_block = min(smallest_block, self.plain_growth - smallest_block + 1)
        self.one_block_growth: Int64Array = np.array(one_block)
        self.lives = Lives(config, self.pruner, self.settler, self.counters)
        self._shared_tables = tuple(GroupTables(rows.slots) for rows in self.rows)
        self._version = 0

    def _plain_growth(self) -> int:
        """Longest step that never has scratch: that takes ``W + R - 1 + B`` positions or more."""
        limits = [
            rule.window + rule.max_rewind_len + rule.block_tokens - 2
            for rule in (group.rule for group in self.grouping.groups)
            if rule.window is not None and rule.scratch_per_slot
        ]
        return min(limits, default=1 << 40)

    # ---- what quotes and reservations ask for

    @property
    def version(self) -> int:
        """Changes with every mutation."""
        return self._version

    @property
    def has_open_reservations(self) -> bool:
        """Whether some reservation is neither kept nor rolled back."""
        return bool(self.open)

    def touch(self) -> None:
        """Change the version."""
        self._version += 1

    def check_thread(self) -> None:
        """Raise ``WrongThread`` in any thread but the one that made the cache."""
        if threading.get_ident() != self._thread:
            raise WrongThread("the cache belongs to the thread that made it")

    def check_unreserved(self, rows: Int64Array) -> None:
        """Raise ``StateError`` for a row that an undispatched reservation holds."""
        for reservation in self.open:
            if reservation.is_undispatched and np.isin(rows, reservation.touched).any():
                raise StateError("a row is held by a reservation that is neither dispatched nor rolled back")

    def check_settleable(self, rows: Int64Array) -> None:
        """Raise ``StateError`` for a row whose oldest open step, or whose cursors, a reservation may still put back."""
        steps = np.zeros(self.sequences.num_rows, np.int64)
        for reservation in self.open:
            steps[reservation.rows] += 1
            if reservation.is_undispatched and np.isin(rows, reservation.moved).any():
                raise StateError("a row is held by a reservation that is neither dispatched nor rolled back")
        if (steps[rows] > np.maximum(self.sequences.num_open[rows] - 1, 0)).any():
            raise StateError("a row is held by a reservation that may be rolled back: keep it or roll it back first")

    def lender(self) -> Lender:
        """Return a fresh account of loans."""
        return Lender(self.rows, self.pools, self.pruner)

    def refresh(self, candidate: Candidate) -> None:
        """Look the candidate's prefix up again if its tree changed since, or if another cache did it."""
        if candidate.access == "none" or not self.config.enable_prefix_caching:
            candidate.match = NO_MATCH
            return
        tree = self.tree.find(candidate.scope)
        version = -1 if tree is None else tree.version
        if candidate.home is not self or version != candidate.match_version or tree is None or self._any_doomed():
            candidate.home = self
            limit = candidate.reuse_limit
            tokens = candidate.tokens if limit is None else candidate.tokens[: limit + 1]
            candidate.match = self.matcher.match(candidate.scope, tokens)
            candidate.match_version = -1 if self._any_doomed() else version

    def _any_doomed(self) -> bool:
        return any(pool.doomed for pool in self.pools)

    def step_tables(self, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> tuple[GroupTables, ...]:
        """Return the page tables of a step."""
        for rows_of in self.rows:
            if rows_of.live_scratch:
                break
        else:
            return self._shared_tables
        tables = []
        for group, (rows_of, buffers) in enumerate(zip(self.rows, self.grouping.buffers, strict=True)):
            spans = self._scratch_spans(rows_of, (rows, starts, ends))
            if not spans:
                tables.append(self._shared_tables[group])
                continue
            counted = self.counters.scratch_blocks
            counted[group] = counted.get(group, 0) + sum(end - begin for _, (begin, end) in spans)
            tables.append(GroupTables(rows_of.slots, partial(per_layer, rows_of, buffers, (rows, ends), spans)))
        return tuple(tables)

    def _scratch_spans(
        self, rows_of: GroupRows, step: tuple[Int64Array, Int64Array, Int64Array]
    ) -> list[tuple[int, Range]]:
        """Return ``(i, blocks)`` of each sequence of a step ``(rows, starts, ends)`` that has scratch in this group."""
        rows, starts, ends = step
        spans: list[tuple[int, Range]] = []
        if rows_of.live_scratch:
            for i in rows_of.num_scratch[rows].nonzero()[0].tolist():
                row = rows[i]
                span = scratch(int(starts[i]), int(ends[i]), rows_of.group.rule)
                if span[1] > span[0] and self.sequences.scratch_ok[row, max(self.sequences.num_open[row] - 1, 0)]:
                    spans.append((i, span))
        return spans

    def copy_pages(self, copies: Sequence[PageCopies]) -> None:
        """Do a step's page copies; nothing to do without memory."""
        for copy in copies:
            self.storage[copy.pool_group].copy(copy.sources, copy.targets)

    def csr(self, rows: Int64Array, group_id: int) -> CsrTables:
        """Return ragged page tables of these sequences up to their capacities, for kernels that want CSR.

        Raises ``StateError`` for a sequence that owns blocks in several runs (sinks and window, or live scratch).
        """
        rows = self.sequences.door.rows(rows)
        if not 0 <= position(group_id, "group_id") < len(self.rows):
            raise ConfigError(f"group_id={group_id} must lie in [0, {len(self.rows) - 1}]", field="group_id")
        return csr(self.rows[group_id], rows, self.sequences.capacity[rows])

    def look_up(self, candidate: Candidate) -> int:
        """Return how many tokens the candidate would reuse now."""
        if not isinstance(candidate, Candidate):
            raise ConfigError(f"candidate={candidate!r} must come from manager.candidate", field="candidate")
        self.refresh(candidate)
        return candidate.match.reused

    def forget_reservation(self, ended: object) -> None:
        """Take an ended reservation off the open list."""
        self.open = [reservation for reservation in self.open if reservation is not ended]

    def utilization(self) -> float:
        """Share of slots in use in the fullest pool group."""
        return max((p.num_slots - p.num_free - p.evictable) / max(p.num_slots, 1) for p in self.pools)


def _check_sub_pages(slots: Sequence[int], grouping: Grouping) -> None:
    """Refuse pools whose sub-pages int32 tables could not number."""
    for view in grouping.views:
        count = slots[view.pool_group] * view.sub_pages
        if count >= 1 << 31:
            raise ConfigError(
                f"pool group {view.pool_group}: {slots[view.pool_group]} slots of {view.sub_pages} sub-pages are "
                f"{count}, and page tables number less than 2^31. Lower device_bytes or pool_slots, or take a larger "
                "tokens_per_block"
            )


def _check_settings(config: KVCacheConfig, grouping: Grouping) -> None:
    """Refuse settings that cannot work together."""
    if config.reuse_unit_tokens is not None and not config.enable_prefix_caching:
        raise ConfigError("reuse_unit_tokens: has no meaning with enable_prefix_caching=False")
    if config.max_rewind_len and any(group.retention is Retention.STATE for group in grouping.groups):
        raise ConfigError(
            f"max_rewind_len={config.max_rewind_len}: state layers settle only at the ends of steps; use 0"
        )
