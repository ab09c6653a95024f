"""What a benchmark found, as tables, as JSON and as a figure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import version

from tidegate.base import ConfigError
from tidegate.bench import Load, Percentiles, Run, Summary, TargetStatistics
from tidegate.cli.scratch_example import ScratchExample
from tidegate.cli.settings import ModelSettings
from tidegate.report import Cell, Table, draw_pages

_PLAIN = "computed from the same steps by the formula for scratch ranges: every scratch block would own a page"


@dataclass(frozen=True, slots=True)
class BenchReport:
    """One run with its settings."""

    settings: ModelSettings
    load: Load
    run: Run
    statistics: TargetStatistics
    num_ranks: int = 1
    example: ScratchExample = field(default_factory=ScratchExample)

    def heading(self) -> list[str]:
        """Return what was served and how, in two lines."""
        load, num_requests = self.load, len(self.run.outcomes)
        rate = "the next when one has ended" if load.request_rate is None else f"{load.request_rate:g} a second"
        places = "" if load.concurrency is None else f", at most {load.concurrency} at once"
        ranks = (
            "" if self.num_ranks == 1 else f" of each of {self.num_ranks} ranks; pages and steps are those of rank 0"
        )
        return [
            self.settings.describe(),
            f"{num_requests} requests: {rate}{places}; at most {self.settings.chunk_size} tokens in a step{ranks}",
        ]

    def tables(self) -> list[Table]:
        """Return what is printed: throughput, latencies, pages."""
        return [self._throughput(), self._latencies(), *([self._pages()] if self.statistics.groups else [])]

    def notes(self) -> list[str]:
        """Return what the tables need said: where the second number of pages is from, and what scratch does elsewhere.

        The example is counted now, by two managers without memory.
        """
        one = self.example
        example = (
            f"Example: {one.layers} windowed layers, a {one.tokens}-token prompt in one step, W={one.window}, "
            f"B={one.block}: {one.slots(scratch=True)} slots instead of {one.slots(scratch=False)}"
        )
        return [*([f"* {_PLAIN}"] if self.statistics.groups else []), example]

    def json(self) -> str:
        """Return everything as JSON."""
        pages = self.statistics.pages
        record = {
            "version": version("tidegate"),
            "settings": asdict(self.settings),
            "load": asdict(self.load),
            "num_ranks": self.num_ranks,
            "summary": Summary.of(self.run.outcomes).record(),
            "num_steps": self.statistics.num_steps,
            "num_suspensions": self.statistics.num_suspensions,
            "balance_ratio": self.statistics.balance_ratio,
            "balance_ratio_by_time": self.statistics.balance_ratio_by_time,
            "groups": [asdict(group) for group in self.statistics.groups],
            "plain_peak_is": _PLAIN,
            "scratch_example": {
                **asdict(self.example),
                "slots": self.example.slots(scratch=True),
                "slots_without_scratch": self.example.slots(scratch=False),
            },
            "pages": pages and {"names": pages.names, "times_s": pages.times_s.tolist(), "pages": pages.pages.tolist()},
            "requests": [asdict(outcome) for outcome in self.run.outcomes],
        }
        return json.dumps(record, indent=1, ensure_ascii=False) + "\n"

    def figure(self) -> bytes:
        """Return pages over time as a PNG."""
        if self.statistics.pages is None:
            raise ConfigError("--figure: the target does not tell its pages")
        return draw_pages(self.statistics.pages, title="Pages in use")

    def _throughput(self) -> Table:
        summary = Summary.of(self.run.outcomes)
        rows: list[tuple[Cell, ...]] = [
            ("requests", summary.num_requests),
            ("duration (s)", summary.duration_s),
            ("prompt tokens", summary.prompt_tokens),
            ("of them from the cache", summary.cached_tokens),
            ("cache hits (%)", 100 * summary.cache_hit_ratio),
            ("output tokens", summary.output_tokens),
            ("output tokens/s", summary.output_tokens_per_s),
            ("total tokens/s", summary.total_tokens_per_s),
            ("steps", self.statistics.num_steps),
            ("suspensions", self.statistics.num_suspensions),
        ]
        if self.statistics.balance_ratio is not None:
            rows += [
                ("balance ratio", self.statistics.balance_ratio),
                ("balance ratio, by time", self.statistics.balance_ratio_by_time),
            ]
        rows += [(f"ended: {reason}", count) for reason, count in summary.finish_reasons.items()]
        return Table("Throughput", ("what", "value"), tuple(rows))

    def _latencies(self) -> Table:
        summary = Summary.of(self.run.outcomes)
        return Table(
            "Latency (ms)",
            ("what", "mean", "p50", "p90", "p99", "max"),
            (
                _milliseconds("TTFT: arrival to first token", summary.ttft_s),
                _milliseconds("TPOT: per token after the first", summary.tpot_s),
                _milliseconds("whole request", summary.latency_s),
            ),
        )

    def _pages(self) -> Table:
        rows = tuple(
            (
                group.name,
                group.num_layers,
                group.peak_pages,
                group.plain_peak,
                _saving(group.peak_pages, group.plain_peak),
            )
            for group in self.statistics.groups
        )
        measured = "with scratch" if self.settings.scratch else "scratch is off"
        return Table(
            "Peak pages per layer group",
            ("group", "layers", measured, "without scratch*", "saved (%)"),
            rows,
        )


def _milliseconds(name: str, percentiles: Percentiles | None) -> tuple[Cell, ...]:
    if percentiles is None:
        return (name, None, None, None, None, None)
    values = (percentiles.mean, percentiles.p50, percentiles.p90, percentiles.p99, percentiles.max)
    return (name, *(1e3 * value for value in values))


def _saving(peak: int, plain: int) -> float:
    return 100 * (1 - peak / plain) if plain else 0.0
