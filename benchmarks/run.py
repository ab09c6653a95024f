"""Measure bars: ``python -m benchmarks.run P1 P3 … [--peers] [--json FILE] [--check] [--out FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    cost_growth,
    decode_step,
    finish,
    prefill_chunks,
    prefix_match,
    scheduler_step,
    windowed_pages,
)
from benchmarks.case import Case
from benchmarks.peers import PeerPaths, Peers
from benchmarks.result import Collected, Result, table

BARS: dict[str, Callable[[], list[Case]]] = {
    "P1": decode_step.cases,
    "P2": scheduler_step.cases,
    "P3": prefix_match.cases,
    "P4": prefill_chunks.cases,
    "P4b": finish.cases,
    "P5": windowed_pages.cases,
    "P6": cost_growth.cases,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits 2 on what it does not know."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure performance bars.")
    parser.add_argument("bars", nargs="*", metavar="BAR", help=f"which of {' '.join(BARS)}; default: all")
    parser.add_argument("--peers", action="store_true", help="run vLLM and SGLang in the same rounds")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, ours and the peers' in turn (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a list of records")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the peers' form, for run_all.sh")
    parser.add_argument("--check", action="store_true", help="exit 1 naming what is missed")
    options = parser.parse_args(arguments)
    unknown = [bar for bar in options.bars if bar not in BARS]
    if unknown:
        parser.error(f"unknown bar {unknown[0]}: choose from {' '.join(BARS)}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} must be at least 1")
    return options


def measure(cases: Sequence[Case], rounds: int, peers: Peers | None) -> list[Result]:
    """Sample the cases of one bar, each round followed by the peers' calls of that bar."""
    collected = [Collected(case) for case in cases]
    calls = list(dict.fromkeys(call for case in cases for versus in case.versus for call in versus.calls))
    for _ in range(rounds):
        samples = [case.sample() for case in cases]
        answers = peers.ask_all(calls) if peers else {}
        for one, values in zip(collected, samples, strict=True):
            one.add_round(values, answers)
    return [one.result() for one in collected]


def run(bars: Iterable[str], rounds: int, peers: Peers | None) -> list[Result]:
    """Measure bar after bar, saying on stderr which."""
    results = []
    for bar in bars:
        print(f"{bar} …", file=sys.stderr, flush=True)
        results += measure(BARS[bar](), rounds, peers)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    bars = options.bars or list(BARS)
    if options.peers:
        with Peers(PeerPaths.from_environment()) as peers:
            results = run(bars, options.rounds, peers)
            notes = [f"peer {name}" for name in peers.versions]
            notes += [f"peer {name}: {why}" for name, why in peers.complaints.items()]
    else:
        results, notes = run(bars, options.rounds, None), []
    print("\n".join([table(results), *notes]))
    if options.json:
        _write(options.json, [result.record() for result in results])
    if options.out:
        rows = [result.row() for result in results if result.case.unit in ("µs", "slots")]
        _write(options.out, {"peer": "tidegate", "version": version("tidegate"), "unit": "ns", "results": rows})
    missed = [f"{r.case.bar} {r.case.what}: {miss}" for r in results for miss in r.misses]
    if options.check:
        print("\n".join(["missed:", *missed] if missed else ["every bar holds"]))
    return 1 if options.check and missed else 0


def _write(path: Path, content: object) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.resolve().parent, delete=False, encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
    os.replace(file.name, path)


if __name__ == "__main__":
    sys.exit(main())
