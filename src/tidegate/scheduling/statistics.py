"""Counters of a scheduler, frozen when asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatistics:
    """``queried_tokens`` and ``hit_tokens`` count each request once, when it is first admitted.

    What a suspended request finds of itself when it comes back is ``rematched_tokens``, and what it computes a second
    time ``recomputed_tokens``. ``longest_wait_s``: from arrival to first admission, of those admitted. ``overtakes``
    counts each time a request was admitted past one that could not run; ``most_overtakes`` is the most of any request.
    ``decode_tokens`` counts a decoding sequence once in each step, without its drafts; of ``draft_tokens`` computed
    besides, ``accepted_tokens`` were right.
    """

    waiting: int = 0
    running: int = 0
    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    submitted: int = 0
    admitted: int = 0
    resumed: int = 0
    suspended: int = 0
    finished: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    rematched_tokens: int = 0
    recomputed_tokens: int = 0
    deferrals: int = 0
    expired: int = 0
    overtakes: int = 0
    most_overtakes: int = 0
    longest_wait_s: float = 0.0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def tokens_per_decode(self) -> float:
        """Mean number of tokens that a decoding sequence got in a step; 1 without drafts."""
        return 1.0 + self.accepted_tokens / self.decode_tokens if self.decode_tokens else 1.0


@dataclass(slots=True)
class Counters:
    """The running counts behind ``SchedulerStatistics``."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    submitted: int = 0
    admitted: int = 0
    resumed: int = 0
    suspended: int = 0
    finished: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    rematched_tokens: int = 0
    recomputed_tokens: int = 0
    deferrals: int = 0
    expired: int = 0
    overtakes: int = 0
    most_overtakes: int = 0
    longest_wait_s: float = 0.0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def admission(self, num_tokens: int, num_reused: int, wait_s: float, *, is_resumed: bool) -> None:
        """Count a request entering a row, ``wait_s`` after its arrival."""
        if is_resumed:
            self.resumed += 1
            self.rematched_tokens += num_reused
            self.recomputed_tokens += num_tokens - num_reused
        else:
            self.admitted += 1
            self.longest_wait_s = max(self.longest_wait_s, wait_s)
            self.queried_tokens += num_tokens
            self.hit_tokens += num_reused

    def freeze(self, *, waiting: int, running: int) -> SchedulerStatistics:
        """Return the counts as a value."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        return SchedulerStatistics(waiting=waiting, running=running, **counts)
