"""What can ever fit: the same formulas that size the pools, so that planner and admission agree."""

from __future__ import annotations

from tidegate.base import Retention
from tidegate.cache.core import CacheCore
from tidegate.cache.sizing import concurrency, least_chunk, pages_alone, step_pages


class CapacityPlan:
    """Answers about the configured pools, whatever they hold now."""

    def __init__(self, core: CacheCore) -> None:
        self._grouping = core.grouping
        self._slots = [pool.num_slots for pool in core.pools]
        self._config = core.config
        self.least_chunk = least_chunk(core.grouping.groups)

    def set_aside(self, pages: tuple[int, ...]) -> None:
        """Leave pages out from now on, per pool group: somebody holds them for as long as the cache lives."""
        self._slots = [slots - taken for slots, taken in zip(self._slots, pages, strict=True)]

    def max_concurrency(self, seq_len: int) -> float:
        """How many sequences of ``seq_len`` tokens run at once, with one prefill chunk in flight."""
        return concurrency(self._grouping, self._slots, seq_len, self._config.max_chunk_tokens)

    def fits_alone(self, num_tokens: int) -> bool:
        """Whether a lone sequence can hold ``num_tokens`` tokens, if its chunks are cut as far as need be."""
        return self.shortfall_alone(num_tokens) is None

    def shortfall_alone(self, num_tokens: int) -> str | None:
        """Say why a lone sequence cannot hold ``num_tokens`` tokens, or None when it can."""
        if num_tokens > self._config.max_seq_len:
            return f"{num_tokens} tokens are above max_seq_len={self._config.max_seq_len}"
        needs = pages_alone(self._grouping, num_tokens, self.least_chunk)
        for pool_group, (need, have) in enumerate(zip(needs, self._slots, strict=True)):
            if need > have:
                return f"{num_tokens} tokens need {need} pages in pool group {pool_group}, which has {have} in all"
        return None

    def chunk_fits_alone(self, start: int, end: int) -> bool:
        """Whether a lone sequence that has settled ``start`` tokens could compute up to ``end`` in one step."""
        needs = [0] * len(self._slots)
        for group in self._grouping.groups:
            snapshot = 1 if group.retention is Retention.STATE else 0
            needs[group.pool_group] += step_pages(group.rule, start, end) + snapshot
        return all(need <= have for need, have in zip(needs, self._slots, strict=True))

    def longest_alone(self) -> int:
        """Most tokens a lone sequence can hold."""
        low, high = 0, self._config.max_seq_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits_alone(middle):
                low = middle
            else:
                high = middle - 1
        return low
