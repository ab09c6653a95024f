"""Ranks that step together: plan, exchange, balance, run. The same driver for one process and for many.

Every decision is a function of gathered rows, so all processes come to the same one; a digest of all of them travels
with the next row and shows at once when they do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from tidegate.base import Clock, Int64Array, RankError
from tidegate.request import Request, TokenDelta
from tidegate.runtime.group.exchange import Exchange
from tidegate.runtime.group.intake import Intake
from tidegate.runtime.group.outbox import Outbox
from tidegate.runtime.group.rank import Rank
from tidegate.scheduling import BalanceMeter, Balancer, Column, Decision

_HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupStep:
    """What one step of the group was: the gathered rows, the decision, and of the ranks in this process their tokens
    and how many first chunks were held. ``routed`` requests went to a rank after it."""

    rows: Int64Array
    decision: Decision
    is_run: bool
    tokens: tuple[int, ...]
    held: tuple[int, ...]
    routed: tuple[tuple[str, int], ...] = ()


class RankGroup:
    """The ranks of this process, in step with those of the others.

    Requests and aborts are given where rank 0 lives, between steps; its ``step`` returns what is new on all ranks.
    ``pace(tokens per local rank)`` is called before a step is carried out, while each rank still has its plan: a
    simulated clock moves there. Without any tokens it is called only when a step that was launched before ends.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        exchange: Exchange,
        intake: Intake,
        balancer: Balancer[object],
        *,
        clock: Clock,
        pace: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        self.ranks = tuple(ranks)
        self.meter = BalanceMeter()
        self.last: GroupStep | None = None
        self._exchange = exchange
        self._intake = intake
        self._balancer = balancer
        self._state = balancer.start()
        self._outbox = Outbox(exchange)
        self._clock = clock
        self._pace = pace
        self._digest = 0
        self._is_idle = True
        self._was_routed = False
        self._fresh: list[TokenDelta] = []
        """What ranks have concluded and nobody was told yet: a rank that fails must not lose the others' outputs."""

    @property
    def is_leader(self) -> bool:
        """Whether rank 0 lives here."""
        return 0 in self._exchange.local

    @property
    def has_work(self) -> bool:
        """Whether any rank has, or something is on its way between ranks."""
        return not self._is_idle or self._intake.has_pending or self._outbox.has_pending

    @property
    def is_stopped(self) -> bool:
        """Whether rank 0 has told all to stop."""
        return self._intake.is_stopped

    def submit(self, request: Request, *, stream: bool = False) -> None:
        """Take a request for whichever rank the router chooses.

        Raises ``ConfigError``, ``RequestTooLong`` or ``QueueFull``, and then nothing has changed.
        """
        self._intake.submit(request, stream=stream)

    def abort(self, request_id: str) -> None:
        """End a request, wherever it is; its last delta comes with a later step."""
        self._intake.abort(request_id)

    def stop(self) -> None:
        """Cancel what has not ended, and have all ranks stop once it was answered: step until ``is_stopped``."""
        self._intake.stop()

    def step(self) -> list[TokenDelta]:
        """Take one step with all ranks, or when all are idle wait for rank 0, for a while."""
        if self._is_idle and not self._awake():
            return []
        try:
            rows = self._exchange.gather(self._announce())
            rows.flags.writeable = False  # a policy is somebody else's code
            self._check_digest(rows)
            self._state, decision = self._balancer.decide(self._state, rows)
            tokens = tuple(rank.restrict(decision) for rank in self.ranks)
            held = tuple(rank.num_held for rank in self.ranks)
            is_run, began_s = _is_run(rows, decision), self._clock.now()
            if self._pace is not None and (is_run or any(rank.in_flight for rank in self.ranks)):
                self._pace(tokens)
            for rank in self.ranks:
                self._fresh += rank.conclude(runs=is_run, began_s=began_s)
        except BaseException:
            for rank in self.ranks:
                rank.abandon()
            raise
        self.last = GroupStep(rows, decision, is_run, tokens, held)
        self._measure(rows)
        deltas, self._fresh = self._fresh, []
        new = self._outbox.exchange(rows, deltas)
        routed = self._intake.route(rows, self._exchange, self.ranks)
        new += self._intake.ended()
        for delta in new:
            if delta.output is not None:
                self._intake.forget(delta.request_id)
        self._was_routed = bool(routed)
        self.last = replace(self.last, routed=routed)
        self._digest = _digest(self._digest, rows, decision, routed)
        self._is_idle = not rows[:, [Column.HAS_WORK, Column.INBOX_BYTES, Column.OUTBOX_BYTES]].any() and not routed
        return new

    def close(self) -> None:
        """Abort what is left on the ranks of this process. The exchange stays open: it is its maker's to close."""
        with ExitStack() as stack:
            for rank in reversed(self.ranks):
                stack.callback(rank.close)

    def _awake(self) -> bool:
        if not self.is_leader:
            return self._exchange.sleep(_HEARTBEAT_S)
        if not self._intake.has_pending:
            return False
        self._exchange.wake()
        return True

    def _announce(self) -> Int64Array:
        rows = np.stack([rank.propose() for rank in self.ranks])
        rows[:, Column.DIGEST] = self._digest
        rows[:, Column.OUTBOX_BYTES] = self._outbox.sizes(len(self.ranks))
        if self.last is not None and not self._was_routed:  # else the last rows no longer tell who has what
            self._intake.offer_moves(rows, self.last.rows, self._exchange.local, self.ranks)
        if self.is_leader:
            rows[0, Column.INBOX_BYTES] = self._intake.announce()
            rows[0, Column.HAS_WORK] |= int(self._intake.num_queued > 0)
        return rows

    def _check_digest(self, rows: Int64Array) -> None:
        digests = rows[:, Column.DIGEST]
        others = np.flatnonzero(digests != digests[0])
        if len(others):
            raise RankError(
                f"ranks {others.tolist()} decided otherwise than rank 0 in the last step: digests "
                f"{digests[others].tolist()} against {int(digests[0])}",
                ranks=others.tolist(),
                digests=digests.tolist(),
            )

    def _measure(self, rows: Int64Array) -> None:
        """Count the step before this one, whose tokens the rows tell."""
        tokens = rows[:, Column.LAST_TOKENS]
        if tokens.any():
            self.meter.add(tokens, float(rows[:, Column.LAST_STEP_US].max()) / 1e6)


def _is_run(rows: Int64Array, decision: Decision) -> bool:
    """Tell whether any rank computes something of its own."""
    computes = rows[:, Column.GEN_REAL] + rows[:, Column.CTX]
    if decision.hold:
        computes = computes - rows[:, Column.CTX if decision.holds_all_chunks else Column.FIRST]
    return bool(computes.any())


def _digest(before: int, rows: Int64Array, decision: Decision, routed: Sequence[tuple[str, int]]) -> int:
    """Return 63 bits of everything that was decided so far."""
    text = repr((before, decision, tuple(routed))).encode()
    return int.from_bytes(hashlib.blake2b(rows.tobytes() + text, digest_size=8).digest(), "little") >> 1
