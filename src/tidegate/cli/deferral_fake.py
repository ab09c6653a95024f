"""One cell of the deferral scenario on fake engines: every page is checked by fingerprints, and time is counted.

A step takes as long as its busiest rank, since all ranks wait for it (``tidegate.testing.group_run``).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tidegate.base import TidegateError
from tidegate.cache import window_peak
from tidegate.cli.deferral_cells import DeferralCell, DeferralLoad, balance_settings
from tidegate.report import TokenHistory
from tidegate.request import FinishReason, Request, RequestOutput
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window

VOCABULARY = 97
BLOCK, WINDOW = 32, 128
LAYERS = stacked(full(), full(), window(WINDOW), window(WINDOW))


@dataclass(frozen=True, slots=True)
class FakeCells:
    """Runs cells of one load. What each request must produce is computed once, without any cache."""

    load: DeferralLoad
    requests: tuple[Request, ...]
    expected: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, load: DeferralLoad) -> FakeCells:
        """Prepare a load."""
        requests = tuple(load.requests(VOCABULARY))
        engine = FakeEngine(LAYERS, vocab_size=VOCABULARY)
        expected = {r.request_id: tuple(engine.continuation(r.prompt.tolist(), r.max_tokens)) for r in requests}
        return cls(load, requests, expected)

    def run(self, deferral: str, balance: str, on_finish: Callable[[], None] = lambda: None) -> DeferralCell:
        """Run one cell to its end, or to the first thing that must not happen."""
        load = self.load
        run = _FakeRun(load, deferral, balance)
        waiting, num_in_flight, num_violations = deque(self.requests), 0, 0
        while waiting or num_in_flight:
            while waiting and num_in_flight < load.concurrency:
                run.ranks.submit(replace(waiting.popleft(), arrival_s=run.ranks.clock.now()))
                num_in_flight += 1
            try:
                ended = run.step()
            except (TidegateError, AssertionError):
                num_violations += 1
                break
            num_in_flight -= ended
            for _ in range(ended):
                on_finish()
        outputs = run.ranks.outputs
        num_violations += sum(tuple(o.tokens.tolist()) != self.expected[i] for i, o in outputs.items())
        num_violations += not num_in_flight and not waiting and run.loses_pages()
        return run.cell(deferral, balance, load.num_requests, num_violations)


class _FakeRun:
    """The ranks of one cell, and what is counted while they run."""

    def __init__(self, load: DeferralLoad, deferral: str, balance: str) -> None:
        self.ranks = GroupRun(
            load.num_ranks,
            LAYERS,
            vocab_size=VOCABULARY,
            on_forward=self._count_reserved,
            pool_slots=(pool_slots(load),),
            tokens_per_block=BLOCK,
            max_seq_len=load.longest,
            max_batch_size=load.max_batch_size,
            max_num_tokens=2048,
            max_partial_prefills=4,
            deferral=deferral,
            attention_dp_config=balance_settings(balance),
        )
        self._reserved = 0
        self._page_seconds = 0.0
        self._held = 0
        self._tokens: list[tuple[int, ...]] = []
        self._step_s: list[float] = []

    def step(self) -> int:
        """Take one step; return how many requests ended."""
        ranks = self.ranks
        began, before, self._reserved = ranks.clock.now(), len(ranks.outputs), 0
        ranks.step()
        last = ranks.group.last
        if last is not None and last.is_run:
            self._tokens.append(last.tokens)
            self._step_s.append(ranks.clock.now() - began)
            self._page_seconds += self._reserved * self._step_s[-1]
            self._held += sum(last.held)
        return len(ranks.outputs) - before

    def loses_pages(self) -> bool:
        """Whether pages are missing when nothing is left."""
        for _ in range(4):
            self.ranks.step()
        try:
            self.ranks.check_idle()
        except AssertionError:
            return True
        return False

    def cell(self, deferral: str, balance: str, num_requests: int, num_violations: int) -> DeferralCell:
        """Return what was measured."""
        outputs, group = self.ranks.outputs, self.ranks.group
        duration = max((o.timing.finished_s for o in outputs.values()), default=0.0)
        ttfts = [o.timing.ttft_s for o in outputs.values() if o.timing.ttft_s is not None]
        peaks = [sum(pool.peak_in_use for pool in rank.manager.statistics().pools) for rank in group.ranks]
        return DeferralCell(
            deferral=deferral,
            balance=balance,
            requests=num_requests,
            completed=sum(o.finish_reason is FinishReason.LENGTH for o in outputs.values()),
            violations=num_violations,
            tokens_per_s=sum(o.num_tokens for o in outputs.values()) / duration if duration else 0.0,
            ttft_mean_s=float(np.mean(ttfts)) if ttfts else 0.0,
            balance_ratio=group.meter.ratio,
            time_weighted_balance_ratio=group.meter.ratio_by_time,
            deferred_page_seconds=self._page_seconds,
            peak_pages=max(peaks),
            suspensions=sum(rank.session.statistics().suspended for rank in group.ranks),
            num_steps=len(self._tokens),
            held_passes=self._held,
            duration_s=duration,
            digest=digest_of(outputs),
            tokens=TokenHistory(np.array(self._tokens, dtype=np.int64), np.array(self._step_s)),
        )

    def _count_reserved(self, rank: int) -> None:
        self._reserved += sum(self.ranks.group.ranks[rank].manager.statistics().reserved)


def pool_slots(load: DeferralLoad) -> int:
    """Return a rank's slots: the stated share of what its part of the concurrency needs at full length."""
    each = -(-load.longest // BLOCK) + window_peak(WINDOW, BLOCK)
    return int(load.pool_share * each * -(-load.concurrency // load.num_ranks)) + 2


def digest_of(outputs: Mapping[str, RequestOutput]) -> str:
    """Return a digest of all outputs, whatever the order in which they came."""
    total = hashlib.blake2b(digest_size=8)
    for request_id in sorted(outputs):
        total.update(request_id.encode() + outputs[request_id].tokens.astype("<i4").tobytes())
    return total.hexdigest()
