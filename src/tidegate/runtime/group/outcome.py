"""How a run of ranks ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankFailure:
    """A rank that did not end well: ``code`` as processes return it, negative for a signal; or the ``reason`` alone."""

    rank: int
    code: int
    reason: str = ""

    @property
    def how(self) -> str:
        """Say how it ended, in words."""
        if self.reason:
            return self.reason
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class RanksOutcome:
    """Failures in the order in which they were seen; ``stopped`` ranks were ended by the launcher."""

    failures: tuple[RankFailure, ...] = ()
    stopped: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 when all ranks ended well; else that of the first failure, as a shell would give it."""
        if not self.failures:
            return 0
        code = self.failures[0].code
        return 128 - code if code < 0 else code

    @property
    def text(self) -> str:
        """One line that names the first failure, or ''."""
        if not self.failures:
            return ""
        first = self.failures[0]
        return f"rank {first.rank} failed first: {first.how}"
