"""What is measured, seen from outside: requests go in, progress comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.report import PageHistory
from tidegate.request import FinishReason, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Tokens of a request arrived at ``at_s``; the last one says why the request ended."""

    request_id: str
    at_s: float
    num_tokens: int
    finish_reason: FinishReason | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUse:
    """Pages of one layer group at peak; ``plain_peak`` is what allocation without scratch would have needed."""

    name: str
    num_layers: int
    peak_pages: int
    plain_peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatistics:
    """What a target tells of itself; a target that cannot know leaves it empty.

    ``balance_ratio`` is how evenly ranks were loaded, 1 at best: the mean over steps of mean tokens by most tokens of a
    rank, each step counting alike; ``balance_ratio_by_time`` by its time.
    """

    num_suspensions: int = 0
    num_steps: int = 0
    groups: tuple[GroupUse, ...] = ()
    pages: PageHistory | None = None
    balance_ratio: float | None = None
    balance_ratio_by_time: float | None = None


class Target(Protocol):
    """Serves requests. Times are those of the clock that the runner was given."""

    def start(self) -> None:
        """Get ready: whatever must not be measured happens here."""
        ...

    def submit(self, request: Request) -> None:
        """Take a request; raises a ``TidegateError`` when it is refused."""
        ...

    def wait(self, timeout_s: float | None) -> Sequence[Progress]:
        """Let work go on until something arrived or the time is over; None: until something arrived."""
        ...

    def statistics(self) -> TargetStatistics:
        """Return what happened since ``start``."""
        ...
