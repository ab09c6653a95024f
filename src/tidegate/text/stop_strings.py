"""Stop strings over a stream: found across token borders, and no part of one is shown before it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.base import ConfigError


@dataclass(frozen=True, slots=True)
class StopScan:
    """``text`` may be shown; ``stopped_by`` is the stop string that ended the stream, which is not in the text."""

    text: str
    stopped_by: str | None = None


class StopStrings:
    """Watches one sequence's text.

    The match that ends first wins, of those the longest: the same one however the text is cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise ConfigError("stop: a stop string must not be empty")
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._held = ""

    def push(self, text: str) -> StopScan:
        """Take the next piece of text; hold back its end while it may begin a stop string."""
        window = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := window.find(stop)) >= 0]
        if found:
            _, at, stop = min(found)
            self._held = ""
            return StopScan(window[:at], stop)
        keep = self._length_of_possible_start(window)
        self._held = window[len(window) - keep :]
        return StopScan(window[: len(window) - keep])

    def flush(self) -> str:
        """Return what was held back: the stream ended without a match."""
        held, self._held = self._held, ""
        return held

    def _length_of_possible_start(self, window: str) -> int:
        """Return how many last characters begin some stop string."""
        longest = len(self._stops[0]) - 1 if self._stops else 0
        for length in range(min(longest, len(window)), 0, -1):
            tail = window[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
