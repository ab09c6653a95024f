"""Counters of the cache, frozen when read."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.cache.candidate import Candidate

MOST_SCOPES = 1024
"""Scopes that are counted one by one."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Slots of one pool group now, and the most that were ever in use at once."""

    slots: int
    free: int
    evictable: int
    in_use: int
    peak_in_use: int
    pages_dropped: int


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Pages that active sequences own in one layer group, scratch included."""

    owned: int
    peak_owned: int
    scratch: int
    scratch_blocks_served: int


@dataclass(frozen=True, slots=True)
class ScopeStatistics:
    """Look-ups of one scope, one per admitted request."""

    query_tokens: int = 0
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything counted. Token counts are per admitted request, not per retry; resumes are counted apart.

    ``scopes`` holds the ``MOST_SCOPES`` that were used last, ``other_scopes`` the sum of the others: salts may be as
    many as requests. ``reserved`` pages per pool group belong to reservations that are neither dispatched nor rolled
    back.
    """

    pools: tuple[PoolStatistics, ...]
    groups: tuple[GroupStatistics, ...]
    match_unit: int
    query_tokens: int
    hit_tokens: int
    partial_hit_tokens: int
    lost_to_granularity_tokens: int
    requests: int
    requests_without_match: int
    rematched_tokens: int
    suspended: int
    resumed: int
    scopes: dict[tuple[object, ...], ScopeStatistics]
    other_scopes: ScopeStatistics
    reserved: tuple[int, ...]

    @property
    def hit_rate(self) -> float:
        """Share of admitted prompt tokens that were reused."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0


@dataclass(slots=True)
class Counters:
    """What is counted while running."""

    query_tokens: int = 0
    hit_tokens: int = 0
    partial_hit_tokens: int = 0
    lost_to_granularity_tokens: int = 0
    requests: int = 0
    requests_without_match: int = 0
    rematched_tokens: int = 0
    suspended: int = 0
    resumed: int = 0
    scratch_blocks: dict[int, int] = field(default_factory=dict)
    scopes: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)
    other_scopes: tuple[int, int] = (0, 0)

    def count_admission(self, candidate: Candidate, unit: int) -> None:
        """Count one admitted request, or one resumed sequence, once."""
        match = candidate.match
        if candidate.is_resumed:
            self.resumed += 1
            self.rematched_tokens += match.reused
            return
        self.requests += 1
        self.query_tokens += candidate.num_tokens
        self.hit_tokens += match.reused
        self.partial_hit_tokens += match.reused % unit
        self.lost_to_granularity_tokens += match.raw - match.reused
        self.requests_without_match += match.raw == 0
        self._count_scope(candidate, match.reused)

    def _count_scope(self, candidate: Candidate, reused: int) -> None:
        scope, scopes = candidate.scope, self.scopes
        key = scope.lora_id, scope.lora_version, scope.salt
        # Put back last: the first is then the one not used for longest.
        queries, hits = scopes.pop(key, (0, 0))
        scopes[key] = queries + candidate.num_tokens, hits + reused
        if len(scopes) > MOST_SCOPES:
            oldest = scopes.pop(next(iter(scopes)))
            self.other_scopes = self.other_scopes[0] + oldest[0], self.other_scopes[1] + oldest[1]
