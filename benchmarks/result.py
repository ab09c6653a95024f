"""Results: medians against limits and peers, as JSON records and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.case import Case, PeerCall, Versus
from benchmarks.peers import Rows


@dataclass(frozen=True, slots=True)
class PeerResult:
    """A peer's median in the same run, and how many times ours it is."""

    value: float
    ratio: float
    reach: float

    @property
    def holds(self) -> bool:
        """Whether the ratio reaches what it must."""
        return self.ratio >= self.reach


@dataclass(frozen=True, slots=True)
class Result:
    """One case, measured. ``peers`` is None when no peer was asked or none answered."""

    case: Case
    samples: tuple[float, ...]
    peers: Mapping[str, PeerResult] | None = None

    @property
    def value(self) -> float:
        """Median of all samples."""
        return statistics.median(self.samples)

    @property
    def misses(self) -> list[str]:
        """What is missed: one sentence each."""
        missed = []
        if self.case.limit is not None and self.value > self.case.limit:
            missed.append(f"{self.value:.4g} {self.case.unit}, limit {self.case.limit:g}")
        for name, peer in (self.peers or {}).items():
            if not peer.holds:
                missed.append(f"{peer.ratio:.2f}x against {name}, must reach {peer.reach:g}x")
        return missed

    def record(self) -> dict[str, Any]:
        """The JSON record of ``--json``."""
        peers = {
            name: {"value": p.value, "ratio": p.ratio, "reach": p.reach, "holds": p.holds}
            for name, p in (self.peers or {}).items()
        }
        return {
            "bar": self.case.bar,
            "what": self.case.what,
            "value": self.value,
            "unit": self.case.unit,
            "limit": self.case.limit,
            "holds": not self.misses,
            "peers": peers or None,
        }

    def row(self) -> dict[str, Any]:
        """The record of ``--out``: the peers' form, times in nanoseconds and slots by their name for them."""
        if self.case.unit == "slots":
            return {"name": self.case.name, "swa_peak_blocks": int(self.value), **self.case.keys}
        values = [value * 1e3 for value in self.samples]
        return {
            "name": self.case.name,
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "n": len(values),
            **self.case.keys,
        }


@dataclass(slots=True)
class Collected:
    """The samples of one case over several rounds, with what the peers answered in the same rounds."""

    case: Case
    samples: list[float] = field(default_factory=list)
    _peers: dict[Versus, list[float]] = field(default_factory=dict)

    def add_round(self, samples: Iterable[float], answers: Mapping[PeerCall, Rows]) -> None:
        """Take one round's samples and the peers' answers to the calls of this case."""
        self.samples += samples
        for versus in self.case.versus:
            value = _peer_value(versus, answers)
            if value is not None:
                self._peers.setdefault(versus, []).append(value * (1e-3 if self.case.unit == "µs" else 1))

    def result(self) -> Result:
        """Close the case: medians of everything collected."""
        value = statistics.median(self.samples)
        peers = {
            versus.name: PeerResult(statistics.median(values), statistics.median(values) / value, versus.reach)
            for versus, values in self._peers.items()
        }
        return Result(self.case, tuple(self.samples), peers or None)


def _peer_value(versus: Versus, answers: Mapping[PeerCall, Rows]) -> float | None:
    total = 0.0
    for call in versus.calls:
        rows = [row for row in answers.get(call, []) if row["name"] in versus.rows]
        if len(rows) != len(versus.rows):
            return None
        total += sum(float(row[versus.column]) for row in rows)
    return total


def table(results: Sequence[Result]) -> str:
    """Render the results as aligned text."""
    lines = [("bar", "what", "median", "limit", "min … max", "n", "peers in the same run", "")]
    for result in results:
        case = result.case
        peers = ", ".join(f"{name} {p.value:.4g} = {p.ratio:.1f}x" for name, p in (result.peers or {}).items())
        lines.append(
            (
                case.bar,
                case.what,
                f"{result.value:.4g} {case.unit}",
                "–" if case.limit is None else f"{case.limit:g}",
                f"{min(result.samples):.4g} … {max(result.samples):.4g}",
                str(len(result.samples)),
                peers or "–",
                "MISSED" if result.misses else "holds",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
