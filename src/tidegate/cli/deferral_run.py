"""One cell of the deferral scenario on the ranks of this process: a closed loop, audited after every step."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tidegate.base import Clock, Int64Array, InternalError, LayerSpec, RankError, TidegateError
from tidegate.cache import KVCacheManager
from tidegate.cli.deferral_cells import BLOCK, DeferralCell, DeferralLoad, balance_settings, digest_of
from tidegate.cli.wrapped_engine import WrappedEngine
from tidegate.engine import Engine, StepInput
from tidegate.report import TokenHistory
from tidegate.request import FinishReason, Request, RequestOutput
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import RankGroup
from tidegate.scheduling import Column

_US = 1_000_000
_LOG = logging.getLogger(__name__)


def cell_config(
    load: DeferralLoad, layers: Sequence[LayerSpec], name: tuple[str, str], *, max_num_tokens: int
) -> RuntimeConfig:
    """Return the settings of a rank in the cell ``name``: deferral and balance."""
    return RuntimeConfig.from_settings(
        {
            "device_bytes": load.quota_bytes(layers),
            "tokens_per_block": BLOCK,
            "max_seq_len": load.longest,
            "max_batch_size": load.max_batch_size,
            "max_num_tokens": max_num_tokens,
            "max_partial_prefills": 4,
            "deferral": name[0],
            "attention_dp_config": balance_settings(name[1]),
        }
    )


class ReservedMeter(WrappedEngine):
    """Notes what reservations hold, besides the step's, while the engine computes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.manager: KVCacheManager | None = None
        self.reserved = 0

    def forward(self, step: StepInput) -> npt.ArrayLike:
        """Note, then compute."""
        self.reserved = 0 if self.manager is None else sum(self.manager.statistics().reserved)
        return super().forward(step)


@dataclass(frozen=True, slots=True)
class RankCounters:
    """What each rank counts for itself; gathered as rows ``[ranks, 5]`` when a cell is over."""

    peak_pages: int
    suspensions: int
    violations: int
    held_passes: int
    reserved_page_us: int

    def row(self) -> list[int]:
        """Return the numbers in order."""
        return [self.peak_pages, self.suspensions, self.violations, self.held_passes, self.reserved_page_us]


class CellRun:
    """Runs the requests of a load where rank 0 lives, and follows elsewhere.

    ``expected`` gives right outputs by request id where they are known; anything else counts as a violation.
    """

    def __init__(self, load: DeferralLoad, group: RankGroup, meters: Sequence[ReservedMeter], clock: Clock) -> None:
        self._load = load
        self._group = group
        self._meters = meters
        self._clock = clock
        for meter, rank in zip(meters, group.ranks, strict=True):
            meter.manager = rank.manager
        self._free = [rank.manager.quote().supply for rank in group.ranks]
        self._violations = 0
        self._held = [0] * len(meters)
        self._page_us = [0] * len(meters)
        self._tokens: list[Int64Array] = []
        self._step_s: list[float] = []
        self._outputs: dict[str, RequestOutput] = {}

    def lead(self, requests: Sequence[Request], on_finish: Callable[[], None]) -> None:
        """Keep as many requests in flight as the load says until all have ended, or something must not happen."""
        waiting, num_in_flight = deque(requests), 0
        while waiting or num_in_flight:
            while waiting and num_in_flight < self._load.concurrency:
                self._group.submit(replace(waiting.popleft(), arrival_s=self._clock.now()))
                num_in_flight += 1
            before = len(self._outputs)
            if not self.step():
                return
            for _ in range(len(self._outputs) - before):
                num_in_flight -= 1
                on_finish()

    def follow(self) -> None:
        """Step until rank 0 says that the cell is over.

        Raises ``InternalError`` when a step shows something that must not be: the others still step, and must not wait
        for a rank that has gone on to something else.
        """
        while not self._group.is_stopped:
            if not self.step():
                raise InternalError("a step of the deferral scenario failed on this rank")

    def step(self) -> bool:
        """Take one step and audit; False when that showed something that must not be."""
        for meter in self._meters:
            meter.reserved = 0
        began_s = self._clock.now()
        try:
            deltas = self._group.step()
            for rank in self._group.ranks:
                rank.manager.audit()
        except RankError:
            raise
        except TidegateError as error:
            _LOG.warning("a step of the deferral scenario failed: %s", error)
            self._violations += 1
            return False
        self._outputs |= {delta.request_id: delta.output for delta in deltas if delta.output is not None}
        last = self._group.last
        if last is not None and last.is_run:
            self._count(self._clock.now() - began_s)
        return True

    def _count(self, step_s: float) -> None:
        last = self._group.last
        assert last is not None
        self._step_s.append(step_s)
        self._tokens.append(last.rows[:, Column.LAST_TOKENS])
        for i, meter in enumerate(self._meters):
            self._held[i] += last.held[i]
            self._page_us[i] += int(meter.reserved * step_s * _US)

    def counters(self) -> Int64Array:
        """Return one row for each rank of this process, when nothing is left to run."""
        rows = []
        for i, rank in enumerate(self._group.ranks):
            is_leaking = False
            if not self._violations:
                rank.release_kept()
                is_leaking = rank.manager.quote().supply != self._free[i]
            rows.append(
                RankCounters(
                    peak_pages=sum(pool.peak_in_use for pool in rank.manager.statistics().pools),
                    suspensions=rank.session.statistics().suspended,
                    violations=self._violations + is_leaking,
                    held_passes=self._held[i],
                    reserved_page_us=self._page_us[i],
                ).row()
            )
        return np.array(rows, dtype=np.int64)

    def cell(
        self, name: tuple[str, str], counters: Int64Array, expected: Mapping[str, Sequence[int]] | None = None
    ) -> DeferralCell:
        """Return what was measured; ``counters`` are those of all ranks."""
        outputs, meter = self._outputs, self._group.meter
        began = min((o.timing.arrival_s for o in outputs.values()), default=0.0)
        duration = max((o.timing.finished_s for o in outputs.values()), default=0.0) - began
        ttfts = [o.timing.ttft_s for o in outputs.values() if o.timing.ttft_s is not None]
        wrong = 0 if expected is None else sum(list(o.tokens) != list(expected[i]) for i, o in outputs.items())
        peak, suspensions, violations, held, page_us = counters.T
        return DeferralCell(
            deferral=name[0],
            balance=name[1],
            requests=self._load.num_requests,
            completed=sum(o.finish_reason is FinishReason.LENGTH for o in outputs.values()),
            violations=int(violations.sum()) + wrong,
            tokens_per_s=sum(o.num_tokens for o in outputs.values()) / duration if duration > 0 else 0.0,
            ttft_mean_s=float(np.mean(ttfts)) if ttfts else 0.0,
            balance_ratio=meter.ratio,
            time_weighted_balance_ratio=meter.ratio_by_time,
            deferred_page_seconds=float(page_us.sum()) / _US,
            peak_pages=int(peak.max()),
            suspensions=int(suspensions.sum()),
            num_steps=len(self._tokens),
            held_passes=int(held.sum()),
            duration_s=duration,
            digest=digest_of(outputs),
            # A row tells what its rank computed in the step before.
            tokens=TokenHistory(np.array(self._tokens[1:], dtype=np.int64), np.array(self._step_s[:-1])),
        )
