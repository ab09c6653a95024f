"""After a step: publish what became final, then settle. Never acquires a page."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array, Int64Array, InternalError, Retention
from tidegate.cache.moves import Move, Mover
from tidegate.cache.publishing import Publisher
from tidegate.cache.ranges import stale
from tidegate.cache.sequences import NEVER, NOT_READY, ONE, ZERO, Cursors, Mode, SequenceTable
from tidegate.cache.settle_rules import SettleRules
from tidegate.cache.tables import GroupRows


class Settler:
    """Moves histories forward, and puts rows at new cursors for whoever takes steps or positions back."""

    def __init__(self, rows: list[GroupRows], sequences: SequenceTable, mover: Mover, publisher: Publisher) -> None:
        self.rows = rows
        self._windowed = [r for r in rows if r.group.retention is Retention.WINDOW]
        self.sequences = sequences
        self.rules = SettleRules(rows, sequences)
        self._mover = mover
        self.publisher = publisher
        self._unit = np.array(publisher.unit)
        self._expiry = [
            (np.array(r.block_tokens), np.array(r.block_tokens - 1 + (r.group.window or 1))) for r in self._windowed
        ]
        self._has_state = any(r.group.retention is Retention.STATE for r in rows)
        self._rewind = rows[0].group.rule.max_rewind_len

    def advance(self, rows: Int64Array, histories: Int64Array, tokens: Int32Array) -> None:
        """Settle each row's oldest open step at ``histories``; ``tokens`` became known to it."""
        sequences = self.sequences
        num_open = sequences.num_open[rows]
        if np.count_nonzero(sequences.ends[0][rows] != histories) or np.count_nonzero(num_open) < len(rows):
            short = self.rules.is_plain_short(rows, histories)
            rest = ~short
            odd = rest & ((sequences.ends[0][rows] != histories) | (num_open == 0))
            self.rules.check(rows[odd], histories[odd])
            sequences.append_tokens(rows, tokens)
            if short.any():
                self._settle_short(rows[short], histories[short])
                rows, histories = rows[rest], histories[rest]
        else:
            sequences.append_tokens(rows, tokens)
        event = sequences.event[rows]
        due = (histories >= event).nonzero()[0]
        if len(due) and np.count_nonzero(event) < len(event):
            # The rows that always need a closer look first: event 0.
            for place in (event == ZERO).nonzero()[0].tolist():
                self._settle_one(int(rows[place]), int(histories[place]))
            plain = event.nonzero()[0]
            if not len(plain):
                return
            rows, histories = rows[plain], histories[plain]
            due = (histories >= event[plain]).nonzero()[0]
        if len(rows):
            self._settle_plain(rows, histories, due)

    # ---- many rows whose step ended as planned

    def _settle_plain(self, rows: Int64Array, histories: Int64Array, due: Int64Array) -> None:
        sequences = self.sequences
        settled = histories
        if self._rewind:
            settled = np.maximum(sequences.settled[rows], histories - self._rewind)
        if len(due):
            due_histories = histories[due]
            self._handle_events(rows[due], due_histories, settled[due] if self._rewind else due_histories)
        sequences.history[rows] = histories
        if self._rewind:
            sequences.settled[rows] = settled
        num_open = sequences.num_open[rows]
        num_open -= ONE
        sequences.num_open[rows] = num_open
        if sequences.max_open > 1 and np.count_nonzero(num_open) == 0:
            sequences.ends[0][rows] = -1
            return
        for i in range(1, sequences.max_open):
            sequences.ends[i - 1][rows] = sequences.ends[i][rows]
        sequences.ends[-1][rows] = -1
        full = rows[sequences.mode[rows] == Mode.FULL]
        sequences.mode[full] = Mode.READY
        sequences.border[full] = sequences.border_of(sequences.capacity[full])

    def _settle_short(self, rows: Int64Array, histories: Int64Array) -> None:
        """Settle rows for which ``is_plain_short`` holds: blocks behind their histories were theirs alone and go."""
        sequences, ends = self.sequences, self.sequences.ends[0][rows]
        for group in self.rows:
            block = group.block_tokens
            first = -(-histories // block)
            counts = -(-ends // block) - first
            if counts.any():
                self._unlock(group, group.take(group.places(rows, first, counts)), np.repeat(rows, counts))
        before = sequences.settled[rows]
        settled = np.maximum(before, np.minimum(histories, ends - self._rewind))
        settled = np.where(histories == sequences.history[rows], before, settled)
        due = ((histories >= sequences.event[rows]) | (settled >= sequences.next_stale[rows])).nonzero()[0]
        if len(due):
            self._handle_events(rows[due], histories[due], settled[due])
        sequences.settled[rows] = settled
        sequences.history[rows] = sequences.capacity[rows] = histories
        sequences.num_open[rows] = 0
        sequences.ends[0][rows] = -1
        sequences.scratch_ok[rows, 0] = True
        sequences.mode[rows] = Mode.READY
        sequences.border[rows] = sequences.border_of(histories)

    def _handle_events(self, rows: Int64Array, histories: Int64Array, settled: Int64Array) -> None:
        """Publish and expire what is due in these rows, and note their next events."""
        sequences = self.sequences
        publish = (histories >= sequences.next_publish[rows]).nonzero()[0]
        if len(publish):
            self._publish(rows[publish], histories[publish])
        next_stale = sequences.next_stale[rows]
        expired = (settled >= next_stale).nonzero()[0]
        if len(expired):
            next_stale[expired] = self._expire(rows[expired], settled[expired])
            sequences.next_stale[rows] = next_stale
        if self._rewind:
            next_stale += self._rewind
        sequences.event[rows] = np.minimum(sequences.next_publish[rows], next_stale)

    def _publish(self, rows: Int64Array, histories: Int64Array) -> None:
        sequences = self.sequences
        leaf, numbers = sequences.leaf, rows.tolist()
        if None in [leaf[row] for row in numbers]:
            self._publish_leafless(dict(zip(numbers, histories.tolist(), strict=True)))
        targets = np.minimum(histories, sequences.known[rows]) // self._unit * self._unit
        if not self.publisher.limited:
            sequences.published[rows] = targets
            targets += self._unit
            sequences.next_publish[rows] = targets
            return
        limits = sequences.publish_limit[rows]
        targets = np.minimum(targets, limits // self._unit * self._unit)
        sequences.published[rows] = targets
        following = targets + self._unit
        sequences.next_publish[rows] = np.where(following <= limits, following, NEVER)

    def _publish_leafless(self, histories: dict[int, int]) -> None:
        """Publish the rows that have no open leaf, and those whose leaf is closed by that."""
        leaf = self.sequences.leaf
        while lacking := [row for row in histories if leaf[row] is None]:
            for row in lacking:
                self.publisher.publish(row, histories.pop(row))

    def _expire(self, rows: Int64Array, new: Int64Array) -> Int64Array:
        """Give back the blocks that went out of the windows; return the next ``D`` at which some will."""
        if len(self._windowed) == 1 and not self._windowed[0].group.sink_blocks:
            group, (block, reach) = self._windowed[0], self._expiry[0]
            last = self.sequences.next_stale[rows]
            following: Int64Array = last + block
            if np.count_nonzero(new >= following) == 0:
                last -= reach
                last //= block
                last += rows * group.stride
                self._unlock(group, group.take(last), rows)
                return following
        return self._expire_any(rows, self.sequences.settled[rows], new)

    def _expire_any(self, rows: Int64Array, old: Int64Array, new: Int64Array) -> Int64Array:
        next_stale = np.full(len(rows), NEVER, np.int64)
        for group in self._windowed:
            rule = group.group.rule
            window = rule.window or 1
            end = (new + 1 - window) // rule.block_tokens
            begin = (old + 1 - window) // rule.block_tokens
            if rule.sink_blocks:
                sinks = np.minimum(-(-new // rule.block_tokens), rule.sink_blocks)
                end, begin = np.maximum(end, sinks), np.maximum(begin, sinks)
            else:
                end, begin = np.maximum(end, 0), np.maximum(begin, 0)
            counts = end - begin
            if counts.any():
                self._unlock(group, group.take(group.places(rows, begin, counts)), np.repeat(rows, counts))
            next_stale = np.minimum(next_stale, (end + 1) * rule.block_tokens + window - 1)
        return next_stale

    def _unlock(self, group: GroupRows, pages: Int32Array, rows: Int64Array) -> None:
        """Take the lock that ``rows[i]`` has on ``pages[i]``."""
        pool = group.pool
        if not self.sequences.retains:
            pool.unlock_many(pages)
            return
        retention = self.sequences.retention[rows]
        for value in np.unique(retention).tolist():
            pool.unlock_many(pages[retention == value], value)

    # ---- one row, any case

    def _settle_one(self, row: int, history: int) -> None:
        sequences = self.sequences
        old = sequences.cursors(row)
        if history >= sequences.next_publish[row]:
            self.publisher.publish(row, history)
        if old.history < history <= sequences.prompt_len[row]:
            self.publisher.checkpoint_chunk(row, history)
        self._drop_snapshots(row, old.steps[0].end)
        planned = len(old.steps) > 1 and sequences.mode[row] == Mode.PLANNED
        self.move_to(Move(row, Cursors(history, self.rules.settled_at(row, history), old.steps[1:]), old))
        sequences.mode[row] = Mode.PLANNED if planned else Mode.READY
        self.refresh(row)

    def _drop_snapshots(self, row: int, end: int) -> None:
        """Pages of snapshots by steps up to the one that ended at ``end``: a checkpoint keeps them, or they go."""
        pending = self.publisher.pending_snapshots.get(row)
        if not pending:
            return
        for position, pages in [entry for entry in pending if entry[0] <= end]:
            for group, page in pages.items():
                self.rows[group].pool.unlock(np.array([page], np.int32), int(self.sequences.retention[row]))
            pending.remove((position, pages))

    def move_to(self, move: Move) -> None:
        """Put a row at new cursors, which never needs pages; whatever falls away is given back."""
        sequences, row = self.sequences, move.row
        self._mover.diff(move)
        if move.acquire:
            raise InternalError("settling or taking a step back would need pages", row=row, blocks=move.acquire)
        retention = int(sequences.retention[row])
        for group, run in move.release:
            self.rows[group].pool.unlock(self.rows[group].take_run(row, run)[::-1], retention)
        for group, change in move.scratch:
            rows = self.rows[group]
            rows.pool.unlock(rows.cut_scratch(row, int(rows.num_scratch[row]) + change))
        sequences.set_cursors(row, move.cursors)

    def refresh(self, row: int) -> None:
        """Recompute the limits derived from a row's cursors, mode and publishing."""
        sequences = self.sequences
        capacity, prompt_len = int(sequences.capacity[row]), int(sequences.prompt_len[row])
        watched = sequences.mode[row] != Mode.READY or (self._has_state and capacity < prompt_len)
        if watched or self._mover.shared_blocks(row, capacity):
            sequences.border[row] = NOT_READY
        else:
            sequences.border[row] = sequences.border_after(capacity)
        held = sequences.num_open[row] and np.count_nonzero(sequences.begins[row] >= 0)
        if sequences.history[row] < prompt_len or held or any(group.num_scratch[row] for group in self._windowed):
            sequences.event[row] = 0
            return
        settled = int(sequences.settled[row])
        sequences.next_stale[row] = min(
            (
                (stale(settled, group.group.rule)[1] + 1) * group.block_tokens + (group.group.window or 1) - 1
                for group in self._windowed
            ),
            default=NEVER,
        )
        sequences.event[row] = min(int(sequences.next_publish[row]), int(sequences.next_stale[row]) + self._rewind)
