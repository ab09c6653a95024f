"""The only door of the cache.

Batch calls take ``rows``: distinct ints in ``[0, max_sequences)``, one per active sequence, as int64 arrays. A waiting
or suspended request is a ``Candidate`` and owns nothing. Single-threaded by contract.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

from tidegate.base import Closed, ConfigError, Int64Array, KVLayout, OutOfPages, PoolMemory, StateError
from tidegate.cache.audit import audit_cache
from tidegate.cache.candidate import Candidate, check_ids, checked_access, checked_lengths, checked_tokens, int32_tokens
from tidegate.cache.capacity import CapacityPlan
from tidegate.cache.collecting import collect_statistics
from tidegate.cache.config import KVCacheConfig
from tidegate.cache.core import CacheCore
from tidegate.cache.door import integers, position, token_columns
from tidegate.cache.nodes import ReuseScope
from tidegate.cache.prefix import NO_MATCH, PrefixMatch
from tidegate.cache.quote import Quote
from tidegate.cache.reservation import Reservation
from tidegate.cache.reuse import ReuseControl
from tidegate.cache.sequence_cache import Sequence
from tidegate.cache.sequences import Mode
from tidegate.cache.statistics import Statistics
from tidegate.cache.step_pages import PageCopies
from tidegate.cache.views import CsrTables

_DEFAULT_SCOPE = ReuseScope()


class KVCacheManager:
    """Pages, prefix reuse and cursors of one rank.

    ``groups``, ``layout`` and ``pools`` are what an engine binds; ``history``, ``capacity`` and ``num_open`` read-only
    views indexed by row. ``lookup(candidate)`` is how many tokens it would reuse now, ``copy_pages(copies)`` does a
    step's page copies, ``csr(rows, group_id)`` returns ragged page tables; ``plan`` answers what can ever fit;
    ``reuse`` controls what is cached. ``with_memory=False`` keeps books without bytes (simulation, benchmarks).
    """

    def __init__(self, config: KVCacheConfig, *, with_memory: bool = True) -> None:
        try:
            core = self._core = CacheCore(config, with_memory=with_memory)
        except MemoryError as error:
            raise ConfigError(
                f"max_sequences={config.max_sequences}, max_seq_len={config.max_seq_len} and the quota "
                f"(device_bytes={config.device_bytes}, pool_slots={config.pool_slots}) need more memory than there is: "
                f"{error}"
            ) from error
        self.config = config
        self.groups = core.grouping.groups
        self.layout: KVLayout = core.grouping.layout
        self.pools: tuple[PoolMemory, ...] = tuple(
            PoolMemory(rows, view.sub_pages, view.sub_page_bytes)
            for view in core.grouping.views
            if (rows := core.storage[view.pool_group].rows(view.pool)) is not None
        )
        self.match_unit = core.unit
        self.has_checkpoints = bool(core.tree.special) and config.publishes
        self.lookup: Callable[[Candidate], int] = core.look_up
        self.copy_pages: Callable[[SequenceOf[PageCopies]], None] = core.copy_pages
        self.csr: Callable[[Int64Array, int], CsrTables] = core.csr
        self.plan = CapacityPlan(core)
        self.reuse = ReuseControl(core)
        self.history = _read_only(core.sequences.history)
        self.capacity = _read_only(core.sequences.capacity)
        self.num_open = _read_only(core.sequences.num_open)

    # ---- looking

    def candidate(
        self,
        tokens: npt.ArrayLike,
        scope: ReuseScope = _DEFAULT_SCOPE,
        *,
        access: str = "read_write",
        retention: int = 0,
        declared: SequenceOf[int] = (),
    ) -> Candidate:
        """Return a waiting request over these token ids. ``declared`` are prefix lengths worth keeping.

        Pages of higher ``retention`` (0 … 100) are kept longer. Raises ``ConfigError`` for illegal tokens.
        """
        if type(retention) is not int or not 0 <= retention <= 100:
            raise ConfigError(f"retention={retention!r} must be an integer in [0, 100]")
        checked = checked_tokens(tokens, self.config.max_seq_len)
        candidate = Candidate(checked.copy(), _checked_scope(scope), checked_access(access), retention)
        lengths = checked_lengths(declared, len(checked), self.match_unit)
        candidate.declared = lengths if access == "read_write" and self.config.publishes else ()
        return candidate

    def probe(self, tokens: npt.ArrayLike, scope: ReuseScope = _DEFAULT_SCOPE) -> PrefixMatch:
        """Return what the cache holds of these tokens; mutates nothing."""
        asked = int32_tokens(tokens, self.config.max_seq_len)
        scope = _checked_scope(scope)
        match = self._core.matcher.match(scope, asked) if self.config.enable_prefix_caching else NO_MATCH
        # What matched equals cached tokens, which were checked when they came in.
        check_ids(asked, match.raw)
        return match

    # ---- stepping

    def quote(self) -> Quote:
        """Start pricing a step."""
        return Quote(self._core, self._core.refresh)

    def reserve(self, quote: Quote) -> Reservation:
        """Take everything the quote priced. Raises ``StateError`` when anything changed since the quote was made."""
        core = self._core
        core.check_thread()
        if type(quote) is not Quote or quote.state is not core:
            raise ConfigError(f"quote={quote!r} must come from quote() of this cache", field="quote")
        if quote.version != core.version:
            raise StateError("the quote is stale: the cache has changed since it was made")
        reservation = Reservation(core, quote)
        core.open.append(reservation)
        return reservation

    def advance(self, rows: Int64Array, histories: Int64Array, tokens: npt.ArrayLike) -> None:
        """Settle each row's oldest open step at ``histories``: publish what became final, give back what expired.

        ``tokens`` are the newly known tokens of each row, int32 ``[n]`` or ``[n, m]``, -1 where there is none.
        """
        self._core.check_thread()
        rows = self._core.sequences.door.rows(rows)
        histories = integers(histories, "histories", len(rows))
        if self._core.open:
            self._core.check_settleable(rows)
        self._core.settler.advance(rows, histories, token_columns(tokens, len(rows)))
        self._core.touch()

    def rewind(self, rows: Int64Array, histories: Int64Array, num_known: Int64Array | None = None) -> None:
        """Take positions back; no step may be open. ``num_known`` tokens stay known, by default those below it.

        Raises ``StateError``, with nothing changed for that row, where a window or state no longer reaches.
        """
        rows = self._idle(rows)
        histories = integers(histories, "histories", len(rows))
        known = None if num_known is None else integers(num_known, "num_known", len(rows)).tolist()
        self._core.touch()
        for i, (row, history) in enumerate(zip(rows.tolist(), histories.tolist(), strict=True)):
            self._core.rewinder.rewind(row, history, None if known is None else known[i])

    # ---- leaving

    def suspend(self, rows: Int64Array) -> list[Candidate]:
        """Give everything back; the candidates carry all known tokens and resume by being admitted again."""
        rows = self._idle(rows)
        self._core.touch()
        return [self._core.lives.suspend(row) for row in rows.tolist()]

    def close(self, rows: Int64Array) -> None:
        """End sequences: publish what is final, give everything back. Their open steps must be settled."""
        rows = self._idle(rows)
        self._core.lives.finish(rows)
        self._core.touch()

    def fork(self, row: int, count: int = 1) -> Int64Array:
        """Return ``count`` new rows that share every page of ``row``; the first write to a shared page copies it.

        Takes no page itself. Raises ``OutOfPages`` without enough free rows.
        """
        row = int(self._idle(np.array([row]))[0])
        if position(count, "count") < 1:
            raise StateError(f"count={count} must be at least 1")
        if count > len(self._core.sequences.free_rows):
            raise OutOfPages(f"fork needs {count} rows, {len(self._core.sequences.free_rows)} are free", needed=count)
        self._core.touch()
        return np.array(self._core.lives.fork(row, count), np.int64)

    def create(self, tokens: npt.ArrayLike, scope: ReuseScope = _DEFAULT_SCOPE) -> Sequence:
        """Return a single sequence over a prompt, for embedders that drive one at a time."""
        return Sequence(self, self._core, self.candidate(tokens, scope))

    # ---- checking

    def audit(self) -> None:
        """Check every invariant; raises ``InternalError`` naming the first that is broken."""
        audit_cache(self._core)

    def statistics(self) -> Statistics:
        """Return the counters as they are now."""
        return collect_statistics(self._core)

    def _idle(self, given: Int64Array) -> Int64Array:
        """Return rows that are checked: distinct, active, without an open step."""
        self._core.check_thread()
        sequences = self._core.sequences
        rows = sequences.door.rows(given)
        self._core.check_unreserved(rows)
        if self._core.open:
            self._core.check_settleable(rows)
        for row in rows[sequences.mode[rows] == Mode.FREE].tolist():
            raise Closed(f"row {row} is not an active sequence")
        for row in rows[sequences.num_open[rows] > 0].tolist():
            raise StateError(f"row {row} has an open step: settle or roll it back first")
        return rows


def _checked_scope(scope: ReuseScope) -> ReuseScope:
    if not isinstance(scope, ReuseScope):
        raise ConfigError(f"scope={scope!r} must be a ReuseScope", field="scope", value=scope)
    return scope


def _read_only(array: Int64Array) -> Int64Array:
    view = array.view()
    view.flags.writeable = False
    return view
