"""After a step: publish what became final, then settle. Never acquires a page."""

from __future__ import annotations

import numpy as np

from tidegate.base import Closed, Int32Array, Int64Array, InternalError, Retention, StateError
from tidegate.cache.moves import Move, Mover
from tidegate.cache.publishing import Publisher
from tidegate.cache.ranges import scratch, stale
from tidegate.cache.sequences import NEVER, Cursors, Mode, SequenceTable
from tidegate.cache.tables import GroupRows


class Settler:
    """Moves histories forward (``advance``) and back (``rewind``)."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable, mover: Mover, publisher: Publisher) -> None:
        self._rows = rows
        self._windowed = [r for r in rows if r.group.retention is Retention.WINDOW]
        self._sequences = sequences
        self._mover = mover
        self._publisher = publisher
        self._unit = publisher.unit
        self._has_state = any(r.group.retention is Retention.STATE for r in rows)
        self._smallest = min(r.group.block_tokens for r in rows)
        self._rewind = rows[0].group.rule.max_rewind_len

    def advance(self, rows: Int64Array, histories: Int64Array, tokens: Int32Array) -> None:
        """Settle each row's oldest open step at ``histories``; ``tokens`` became known to it."""
        sequences = self._sequences
        first_ends = self._check(rows, histories)
        slow = (histories != first_ends) | (histories <= sequences.prompt_len[rows])
        for group in self._windowed:
            if group.group.scratch_per_slot:
                slow |= group.num_scratch[rows] > 0
        if slow.any():
            for row, history in zip(rows[slow].tolist(), histories[slow].tolist(), strict=True):
                self.check_settle(row, history)
            sequences.append_tokens(rows, tokens)
            for row, history in zip(rows[slow].tolist(), histories[slow].tolist(), strict=True):
                self._settle_one(row, history)
            rows, histories = rows[~slow], histories[~slow]
            if not len(rows):
                return
        else:
            sequences.append_tokens(rows, tokens)
        self._settle_plain(rows, histories)

    # ---- many rows whose step ended as planned

    def _settle_plain(self, rows: Int64Array, histories: Int64Array) -> None:
        sequences = self._sequences
        due = histories >= sequences.next_publish[rows]
        if due.any():
            self._publish(rows[due], histories[due])
        old_settled = sequences.settled[rows]
        settled = np.maximum(old_settled, histories - self._rewind) if self._rewind else histories
        if self._windowed:
            expired = settled >= sequences.next_stale[rows]
            if expired.any():
                self._expire(rows[expired], old_settled[expired], settled[expired])
        sequences.history[rows] = histories
        sequences.settled[rows] = settled
        if sequences.max_open > 1:
            sequences.begins[rows, :-1] = sequences.begins[rows, 1:]
            sequences.ends[rows, :-1] = sequences.ends[rows, 1:]
        sequences.num_open[rows] -= 1
        mode = sequences.mode[rows]
        if (mode != Mode.READY).any():
            sequences.mode[rows] = np.where((mode == Mode.FULL) | (mode == Mode.PLANNED), Mode.READY, mode)

    def _publish(self, rows: Int64Array, histories: Int64Array) -> None:
        sequences = self._sequences
        for row, history in zip(rows.tolist(), histories.tolist(), strict=True):
            if sequences.leaf[row] is None:
                self._publisher.publish(row, history)
        limits = sequences.publish_limit[rows]
        targets = np.minimum(histories, limits) // self._unit * self._unit
        sequences.published[rows] = targets
        sequences.next_publish[rows] = np.where(targets + self._unit <= limits, targets + self._unit, NEVER)

    def _expire(self, rows: Int64Array, old: Int64Array, new: Int64Array) -> None:
        """Give back the blocks that went out of the windows."""
        sequences = self._sequences
        next_stale = np.full(len(rows), NEVER, np.int64)
        for group in self._windowed:
            rule = group.group.rule
            assert rule.window is not None
            end = self._stale_end(new, group)
            sinks = np.minimum(-(-new // rule.block_tokens), rule.sink_blocks)
            begin = np.maximum(self._stale_end(old, group), sinks)
            counts = end - begin
            total = int(counts.sum())
            if total:
                some = counts > 0
                index = rows[some] * group.stride + begin[some]
                if total != int(np.count_nonzero(some)):
                    counts = counts[some]
                    index = np.repeat(index, counts) + np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
                pages = group.take(index)
                retention = sequences.retention[rows]
                if retention.any():
                    for value, page in zip(np.repeat(retention[some], counts[counts > 0]).tolist(), pages, strict=True):
                        group.pool.unlock(np.array([page], np.int32), value)
                else:
                    group.pool.unlock_many(pages)
            next_stale = np.minimum(next_stale, (end + 1) * rule.block_tokens + rule.window - 1)
        sequences.next_stale[rows] = next_stale

    @staticmethod
    def _stale_end(settled: Int64Array, group: GroupRows) -> Int64Array:
        rule = group.group.rule
        sinks = np.minimum(-(-settled // rule.block_tokens), rule.sink_blocks)
        end: Int64Array = np.maximum(sinks, (settled + 1 - (rule.window or 1)) // rule.block_tokens)
        return end

    # ---- one row, any case

    def _settle_one(self, row: int, history: int) -> None:
        sequences = self._sequences
        old = sequences.cursors(row)
        in_prefill = old.history < sequences.prompt_len[row] and history <= sequences.prompt_len[row]
        if history >= sequences.next_publish[row]:
            self._publisher.publish(row, history)
        if in_prefill and history > old.history:
            self._publisher.checkpoint_chunk(row, history)
        self._drop_snapshots(row, old.steps[0].end)
        self._apply(Move(row, Cursors(history, self.settled_at(row, history), old.steps[1:])))
        mode = sequences.mode[row]
        if mode in (Mode.FULL, Mode.PLANNED):
            sequences.mode[row] = Mode.READY

    def settled_at(self, row: int, history: int) -> int:
        """Return ``D`` after the oldest open step settles at ``history``."""
        sequences = self._sequences
        settled = int(sequences.settled[row])
        if history == sequences.history[row]:
            return settled
        return max(settled, min(history, int(sequences.ends[row, 0]) - self._rewind))

    def _drop_snapshots(self, row: int, end: int) -> None:
        """Pages of snapshots by steps up to the one that ended at ``end``: a checkpoint keeps them, or they go."""
        pending = self._publisher.pending_snapshots.get(row)
        if not pending:
            return
        for position, pages in [entry for entry in pending if entry[0] <= end]:
            for group, page in pages.items():
                self._rows[group].pool.unlock(np.array([page], np.int32), int(self._sequences.retention[row]))
            pending.remove((position, pages))

    def _apply(self, move: Move) -> None:
        sequences, row = self._sequences, move.row
        self._mover.diff(move)
        if move.acquire:
            raise InternalError("settling would need pages", row=row, blocks=move.acquire)
        retention = int(sequences.retention[row])
        for group, run in move.release:
            self._rows[group].pool.unlock(self._rows[group].take_run(row, run)[::-1], retention)
        for group, change in move.scratch:
            rows = self._rows[group]
            rows.pool.unlock(rows.cut_scratch(row, int(rows.num_scratch[row]) + change))
        sequences.set_cursors(row, move.cursors)
        self.refresh(row)

    def refresh(self, row: int) -> None:
        """Recompute the limits derived from a row's cursors."""
        sequences = self._sequences
        capacity = int(sequences.capacity[row])
        watched = (self._has_state and capacity < sequences.prompt_len[row]) or self._ends_in_shared_page(row, capacity)
        sequences.border[row] = -1 if watched else -(-capacity // self._smallest) * self._smallest
        settled = int(sequences.settled[row])
        sequences.next_stale[row] = min(
            (
                (stale(settled, group.group.rule)[1] + 1) * group.group.block_tokens + (group.group.window or 1) - 1
                for group in self._windowed
            ),
            default=NEVER,
        )

    def _ends_in_shared_page(self, row: int, capacity: int) -> bool:
        """Whether the next step writes first into a page that others see, so that it must take a copy."""
        for rows in self._rows:
            if capacity % rows.group.block_tokens:
                page = rows.pages[row, capacity // rows.group.block_tokens]
                if page >= 0 and (rows.pool.locks[page] > 1 or rows.pool.refs[page] > 0):
                    return True
        return False

    # ---- rewind

    def rewind(self, row: int, history: int, num_known: int | None) -> None:
        """Take back positions from ``history`` on. The caller has checked that no step is open."""
        sequences = self._sequences
        current, settled = int(sequences.history[row]), int(sequences.settled[row])
        known = int(sequences.known[row])
        keep = min(known, history) if num_known is None else num_known
        if not history <= keep <= known:
            raise StateError(f"num_known={keep} of row {row} must be in [{history}, {known}]")
        if not settled <= history <= current:
            raise StateError(
                f"cannot rewind row {row} to {history}: its windows only keep what queries at {settled} … {current} read"
            )
        if self._has_state and history not in (0, current) and self._publisher.state_pages(row, history) is None:
            raise StateError(f"cannot rewind row {row} to {history}: its state layers keep no snapshot there")
        if history < sequences.published[row]:
            self._publisher.close_leaf(row)
            published = history // self._unit * self._unit
            sequences.published[row] = published
            if sequences.publish_limit[row] >= published + self._unit:
                sequences.next_publish[row] = published + self._unit
            self._publisher.reattach(row)
        if self._has_state and 0 < history < current:
            self._restore_state(row, history)
        sequences.last_checkpoint[row] = min(int(sequences.last_checkpoint[row]), history)
        self._apply(Move(row, Cursors(history, settled, [])))
        sequences.border[row] = -1
        sequences.known[row] = keep

    def _restore_state(self, row: int, history: int) -> None:
        """Take the state of a snapshot at ``history`` instead of the row's own."""
        for group, page in (self._publisher.state_pages(row, history) or {}).items():
            rows = self._rows[group]
            held = rows.pages[row, :1].copy()
            taken = np.array([page], np.int32)
            rows.pool.lock(taken)
            rows.swap_run(row, 0, taken)
            rows.pool.unlock(held)

    # ---- checks

    def _check(self, rows: Int64Array, histories: Int64Array) -> Int64Array:
        sequences = self._sequences
        num_open, mode = sequences.num_open[rows], sequences.mode[rows]
        unsent = ((mode == Mode.RESERVED) & (num_open < 2)) | (num_open < 1)
        if unsent.any():
            row = int(rows[np.flatnonzero(unsent)[0]])
            if sequences.mode[row] == Mode.FREE:
                raise Closed(f"row {row} is not an active sequence")
            raise StateError(f"row {row} has no dispatched step to settle")
        first_ends = sequences.ends[rows, 0]
        wrong = (histories < sequences.history[rows]) | (histories > first_ends)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise StateError(
                f"row {rows[at]} cannot settle at {histories[at]}: its oldest open step spans "
                f"{sequences.history[rows[at]]} … {first_ends[at]}"
            )
        return first_ends

    def check_settle(self, row: int, history: int) -> None:
        """A step whose scratch holds part of what would be kept cannot end there."""
        sequences = self._sequences
        begin, end = int(sequences.history[row]), int(sequences.ends[row, 0])
        if history == end:
            return
        if sequences.num_open[row] > 1 and history < end - self._rewind:
            raise StateError(
                f"row {row} cannot settle at {history}: later steps are open, and only {self._rewind} positions of "
                f"the one ending at {end} can be taken back"
            )
        if history == begin:
            return
        if self._has_state:
            raise StateError(f"row {row} has state layers: its step can settle at {begin} or {end} only")
        settled = self.settled_at(row, history)
        if not sequences.scratch_ok[row, 0]:
            return
        for group in self._windowed:
            block = group.group.block_tokens
            first, last = scratch(int(sequences.begins[row, 0]), end, group.group.rule)
            kept = min(last, -(-history // block))
            gone = stale(settled, group.group.rule)
            if first < kept and not (gone[0] <= first and kept <= gone[1]):
                raise StateError(
                    f"row {row} cannot settle at {history}: blocks {first} … {kept - 1} of group {group.group.group_id} "
                    f"were scratch; only the last {self._rewind} positions of a step can be taken back"
                )
