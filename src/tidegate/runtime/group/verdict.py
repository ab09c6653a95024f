"""Who is dead: the rules, without threads, clocks or sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.base import RankError, check_real

EXIT_RANK_DIED = 70
"""Exit code of a process that was ended because another rank died."""

_LEFT = b"left "


@dataclass(frozen=True, slots=True)
class LivenessConfig:
    """Times in seconds.

    ``beat_s`` between two beats; a rank silent for ``silent_s`` is dead, so this must exceed the longest time that
    anything holds the interpreter in one piece; ``grace_s`` for the main thread to raise ``RankError`` once a death
    is known, before the process is ended.
    """

    beat_s: float = 0.5
    silent_s: float = 4.0
    grace_s: float = 4.0

    def __post_init__(self) -> None:
        check_real("beat_s", self.beat_s, 0.01, 60.0)
        check_real("silent_s", self.silent_s, 2 * self.beat_s, 3600.0)
        check_real("grace_s", self.grace_s, 0.1, 3600.0)

    @property
    def silent_rounds(self) -> int:
        """Rounds of looking after which an unchanged beat means death."""
        return max(2, round(self.silent_s / self.beat_s))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which ranks are gone and how that is known. ``ranks`` is empty when it is the launcher that is gone."""

    ranks: tuple[int, ...]
    why: str
    found_by: int

    def to_text(self) -> str:
        """Write it for the store."""
        return json.dumps([self.ranks, self.why, self.found_by])

    @classmethod
    def from_text(cls, text: bytes) -> Verdict:
        """Read what ``to_text`` wrote."""
        ranks, why, found_by = json.loads(text)
        return cls(tuple(ranks), why, found_by)

    def error(self) -> RankError:
        """Return the error that a rank raises."""
        return RankError(self.why, ranks=self.ranks, found_by=self.found_by)


def named(ranks: Sequence[int]) -> str:
    """Write ranks as a sentence begins with them."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def beat(count: int) -> str:
    """Write the beat of a rank that is there."""
    return str(count)


def last_beat(num_calls: int) -> str:
    """Write the beat of a rank that leaves after so many collectives."""
    return f"{_LEFT.decode()}{num_calls}"


def calls_of_leaver(value: bytes) -> int | None:
    """Return after how many collectives a rank left, or None while it is there."""
    return int(value[len(_LEFT) :]) if value.startswith(_LEFT) else None


class BeatWatch:
    """Finds ranks whose beat no longer changes.

    Counts rounds of looking, not seconds: when the observer itself was stopped, everybody else seems to have been
    silent for as long, and must not be blamed for it.
    """

    def __init__(self, rank: int, size: int, silent_rounds: int) -> None:
        self._rank = rank
        self._last: list[bytes] = [b""] * size
        self._unchanged = [0] * size
        self._silent_rounds = silent_rounds

    def look(self, beats: Sequence[bytes]) -> tuple[int, ...]:
        """Take one look at all beats and return the ranks that are silent for too long. Leavers never are."""
        for rank, value in enumerate(beats):
            self._unchanged[rank] = self._unchanged[rank] + 1 if value == self._last[rank] else 0
            self._last[rank] = value
        return tuple(
            rank
            for rank, rounds in enumerate(self._unchanged)
            if rounds >= self._silent_rounds and rank != self._rank and calls_of_leaver(beats[rank]) is None
        )


class LeaverWatch:
    """Finds ranks that left although this one waits for them in a collective that they never entered."""

    def __init__(self) -> None:
        self._rounds = 0

    def look(self, beats: Sequence[bytes], call: int) -> tuple[int, ...]:
        """Return the leavers that ``call`` (counted from 1; 0 when in none) waits for in vain, from the third look on.

        A leaver that completed that collective has given it all that it needs.
        """
        left = {rank: calls_of_leaver(value) for rank, value in enumerate(beats)}
        missed = tuple(rank for rank, calls in left.items() if calls is not None and calls < call)
        self._rounds = self._rounds + 1 if missed else 0
        return missed if self._rounds >= 3 else ()
