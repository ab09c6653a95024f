"""Time as a collaborator, so that tests and the simulator own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some fixed origin; never goes back."""

    def now(self) -> float:
        """Return the current time in seconds."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when ``seconds`` have passed."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return the current virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds``, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s: time never goes back")
        self._now += seconds

    def wait(self, seconds: float) -> None:
        """Move forward by ``seconds``: whoever waits is the only one who acts."""
        self.advance(seconds)
