"""Beginnings, ends and copies of sequences."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int64Array
from tidegate.cache.advance import Settler
from tidegate.cache.candidate import Candidate
from tidegate.cache.closing import LeafCloser
from tidegate.cache.config import KVCacheConfig
from tidegate.cache.pages import PagePool
from tidegate.cache.pruning import TreePruner
from tidegate.cache.publishing import Publisher
from tidegate.cache.sequences import NEVER, Mode, SequenceTable
from tidegate.cache.statistics import Counters
from tidegate.cache.tables import GroupRows, OwnedPages

_COPIED_BY_FORK = (
    "history",
    "settled",
    "capacity",
    "known",
    "prompt_len",
    "given",
    "published",
    "next_publish",
    "publish_limit",
    "next_stale",
    "event",
    "last_checkpoint",
    "retention",
    "tokens",
)


class Lives:
    """Starts, suspends, forks and ends rows; ``started`` are the candidates they began as."""

    def __init__(self, config: KVCacheConfig, pruner: TreePruner, settler: Settler, counters: Counters) -> None:
        self.started: dict[int, Candidate] = {}
        self._config = config
        self._pruner = pruner
        self._tree = pruner.tree
        self._rows: list[GroupRows] = pruner.tree.rows
        self._settler = settler
        self._publisher: Publisher = settler.publisher
        self._sequences: SequenceTable = settler.sequences
        self._counters = counters
        self._closer = LeafCloser(self._tree, self._sequences, self.started)

    def start(self, row: int, candidate: Candidate) -> None:
        """Fill in a new row's tokens and attachment; its pages and cursors are the reservation's to set."""
        sequences, match = self._sequences, candidate.match
        count = candidate.num_tokens
        sequences.tokens[row, :count] = candidate.tokens
        sequences.known[row] = sequences.prompt_len[row] = sequences.given[row] = count
        sequences.retention[row] = candidate.retention
        sequences.retains |= candidate.retention > 0
        sequences.leaf[row] = None
        self.started[row] = candidate
        unit = self._tree.unit
        published = match.reused // unit * unit
        node = self._tree.tree(candidate.scope).root
        for part, _ in match.path:
            if part.row >= 0:
                self._tree.close_leaf(part)
            if part.end <= published and part.data:
                node = part
        sequences.attach[row] = node
        sequences.published[row] = sequences.last_checkpoint[row] = published
        self._allow_publishing(row, candidate, published)
        if candidate.declared:
            self._publisher.declared[row] = frozenset(candidate.declared)

    def _allow_publishing(self, row: int, candidate: Candidate, published: int) -> None:
        sequences, mode, unit = self._sequences, self._config.publish, self._tree.unit
        caches = self._config.enable_prefix_caching and mode != "none"
        limit = NEVER if caches and candidate.access == "read_write" else 0
        if limit and mode == "declared":
            limit = max(candidate.declared, default=0)
        if limit and mode == "at_end":
            self._publisher.at_end.add(row)
        sequences.publish_limit[row] = limit
        self._publisher.limited |= limit < NEVER
        at_once = mode != "at_end" and published + unit <= limit
        sequences.next_publish[row] = published + unit if at_once else NEVER

    def count_admission(self, candidate: Candidate) -> None:
        """Count a request that runs for good, once."""
        self._counters.count_admission(candidate, self._tree.unit)

    def suspend(self, row: int) -> Candidate:
        """Give back everything of a row; return its tokens as a candidate that resumes it."""
        started = self.started[row]
        known = int(self._sequences.known[row])
        tokens = self._sequences.tokens[row, :known].copy()
        candidate = Candidate(tokens, started.scope, started.access, started.retention)
        candidate.declared = started.declared
        candidate.is_resumed = True
        self.drop(np.array([row]))
        self._counters.suspended += 1
        return candidate

    def finish(self, rows: Int64Array) -> None:
        """Publish what is final of these rows and give back everything."""
        left, owned = rows, None
        if not self._publisher.limited and self._config.enable_partial_reuse:
            left, owned = self._closer.close(rows)
        for row in left.tolist():
            self._publisher.finish(row)
        self._drop(rows, owned if not len(left) else None)

    def drop(self, rows: Int64Array) -> None:
        """Take rows' pages back and free the rows, without publishing more."""
        leaf = self._sequences.leaf
        for row in rows.tolist():
            if leaf[row] is not None:
                self._publisher.close_leaf(row)
        self._drop(rows, None)

    def _drop(self, rows: Int64Array, owned: list[OwnedPages] | None) -> None:
        """``drop`` rows without an open leaf; ``owned`` are their pages by group, if the caller looked them up."""
        sequences, publisher, started = self._sequences, self._publisher, self.started
        num_tokens = int(sequences.capacity[rows].max(initial=0))
        self._unlock(rows, owned or [group.owned_pages(rows, num_tokens) for group in self._rows])
        for group in self._rows:
            group.blank(rows, num_tokens)
            for row in rows.tolist() if group.live_scratch else ():
                group.pool.unlock(group.cut_scratch(row, 0))
        for row in rows.tolist():
            del started[row]
        if publisher.pending_snapshots or publisher.declared or publisher.at_end:
            for row in rows.tolist():
                self._forget(row)
        attached = [] if self._tree.full else [sequences.attach[row] for row in rows.tolist()]
        sequences.clear_rows(rows)
        for node in attached:
            self._pruner.prune(node)

    def _forget(self, row: int) -> None:
        """Drop what the publisher notes of a row."""
        publisher = self._publisher
        for _, pages in publisher.pending_snapshots.pop(row, ()):
            for group, page in pages.items():
                self._rows[group].pool.unlock(np.array([page], np.int32))
        publisher.declared.pop(row, None)
        publisher.at_end.discard(row)

    def _unlock(self, rows: Int64Array, owned: list[OwnedPages]) -> None:
        """Take the rows' locks from all their pages; each row's last blocks are to be evicted first."""
        retention = self._sequences.retention[rows]
        has_retention = np.count_nonzero(retention) > 0
        of_pool: dict[PagePool, list[tuple[Int64Array, Int64Array]]] = {}
        for group, mine in zip(self._rows, owned, strict=True):
            pages = mine.pages()
            group.owned -= len(pages)
            values = mine.spread(retention) if has_retention else retention
            of_pool.setdefault(group.pool, []).append((pages, values))
        for pool, parts in of_pool.items():
            pages = np.concatenate([part[0] for part in parts])
            if not has_retention:
                pool.unlock_many(pages)
                continue
            values = np.concatenate([part[1] for part in parts])
            for value in np.unique(values).tolist():
                pool.unlock_many(pages[values == value], value)

    def fork(self, row: int, count: int) -> list[int]:
        """Return new rows that share every page of ``row``; whoever writes to one first copies it in its next step."""
        return [self._fork_one(row) for _ in range(count)]

    def _fork_one(self, row: int) -> int:
        sequences, publisher = self._sequences, self._publisher
        publisher.close_leaf(row)
        new = sequences.take_row()
        for name in _COPIED_BY_FORK:
            column = getattr(sequences, name)
            column[new] = column[row]
        sequences.mode[new] = Mode.READY
        sequences.attach[new] = sequences.attach[row]
        self.started[new] = self.started[row]
        if row in publisher.declared:
            publisher.declared[new] = publisher.declared[row]
        if row in publisher.at_end:
            publisher.at_end.add(new)
        for rows_of in self._rows:
            self._share(rows_of, row, new)
        for one in (row, new):
            self._settler.refresh(one)
        return new

    @staticmethod
    def _share(rows_of: GroupRows, row: int, new: int) -> None:
        pages = rows_of.pages[row]
        owned = pages[pages >= 0]
        rows_of.pool.lock(owned)
        rows_of.pages[new], rows_of.slots[new] = pages, rows_of.slots[row]
        rows_of.owned += len(owned)
