"""Drafts on the packaged model: ``python -m benchmarks.speculation [--rounds N] [--drafts K] [--batch B]``.

Each round generates with and without drafts in turn, so that a slow spell of the machine meets both. The ratio is also
given in processor time, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.request import SamplingParams
from tidegate.runtime import LLM

LIST = "name: {0}, colour: {1}, price: {2} coins, in stock: yes, delivery: two days\n"
FRUITS = ("apple red 3", "pear green 4", "plum blue 2", "cherry red 6", "lemon yellow 5", "fig purple 7")
PROSE = (
    "The lighthouse keeper had not spoken to anyone for eleven days when",
    "Among the causes of the long decline of the wool trade, historians count",
    "My grandmother kept three clocks in her kitchen, and none of them",
    "If the moon were twice as near to us as it is, the first thing that",
    "She opened the letter on the train, somewhere between two stations whose names",
    "A good translation is never finished; at some point it is only",
    "The committee met in a room above the bakery, and its first decision was",
    "Glaciers move in two ways, of which the slower one",
)


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts and how they are continued."""

    name: str
    prompts: tuple[str, ...]
    sampling: SamplingParams


@dataclass(slots=True)
class Times:
    """Seconds of each round, on the wall and of the processor, and tokens per decode step of the last."""

    seconds: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    tokens_per_decode: float = 1.0


def loads(batch: int) -> list[Load]:
    """Return a load that repeats itself, one that may, and one that does not."""
    rows = [fruit.split() for fruit in FRUITS]
    tables = tuple("".join(LIST.format(*row) for row in rows[i % 6 :] + rows[: i % 6]) for i in range(batch))
    prose = tuple(PROSE[i % len(PROSE)] for i in range(batch))
    return [
        Load("table, temperature 0", tables, SamplingParams(temperature=0.0)),
        Load("prose, temperature 0", prose, SamplingParams(temperature=0.0)),
        Load("prose, temperature 1", prose, SamplingParams(temperature=1.0, seed=11)),
    ]


def run(llm: LLM, load: Load, tokens: int, times: Times) -> list[list[int]]:
    """Generate once, timed."""
    before = llm.statistics()
    begin, processor_begin = time.perf_counter(), time.process_time()
    outputs = llm.generate(load.prompts, load.sampling, max_tokens=tokens, ignore_eos=True)
    times.seconds.append(time.perf_counter() - begin)
    times.processor_s.append(time.process_time() - processor_begin)
    after = llm.statistics()
    decodes = after.decode_tokens - before.decode_tokens
    times.tokens_per_decode = 1.0 + (after.accepted_tokens - before.accepted_tokens) / decodes
    return [output.tokens.tolist() for output in outputs]


def measure(options: argparse.Namespace) -> None:
    """Run all loads and print a line for each."""
    settings = {"max_batch_size": options.batch, "enable_prefix_caching": False, "max_seq_len": 1024}
    with LLM(**settings) as plain, LLM(**settings, num_speculative_tokens=options.drafts) as drafting:
        for load in loads(options.batch):
            without, with_drafts = Times(), Times()
            num_equal = 0
            for _ in range(options.rounds + 1):  # the first round warms up
                expected = run(plain, load, options.tokens, without)
                found = run(drafting, load, options.tokens, with_drafts)
                num_equal = sum(a == b for a, b in zip(expected, found, strict=True))
            wall = ratio(with_drafts.seconds, without.seconds)
            processor = ratio(with_drafts.processor_s, without.processor_s)
            print(
                f"{load.name}: {with_drafts.tokens_per_decode:.2f} tokens per step, "
                f"{statistics.median(without.seconds[1:]):.2f} s without, "
                f"{statistics.median(with_drafts.seconds[1:]):.2f} s with drafts, "
                f"ratio {wall}, of processor time {processor}, "
                f"{num_equal} of {len(load.prompts)} outputs equal",
                flush=True,
            )


def ratio(times: Sequence[float], others: Sequence[float]) -> str:
    """Return the median, least and largest ratio of two rows of rounds, without the first of each."""
    ratios = [one / other for one, other in zip(times[1:], others[1:], strict=True)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speculation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96)
    measure(parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
