"""Every bar runs in tiny sizes and measures what it says. No test looks at a time."""

import numpy as np
import pytest

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
from benchmarks.run import BARS
from benchmarks.sequences import BLOCK
from benchmarks.windowed_pages import Prefill

DECODE = decode_step.Sizes(sequences=(3,), context=64, steps=40)
SCHEDULER = scheduler_step.Sizes(sequences=3, context=64, steps=4)
MATCH = prefix_match.Sizes(tokens=(256,), nodes=(1, 4), repeats=3)
CHUNKS = prefill_chunks.Sizes(tokens=512, chunk=128, prompts=3)
FINISH = finish.Sizes(sequences=3, context=64, repeats=2)
PAGES = windowed_pages.Sizes(grid=(Prefill(100, 16, 8, 40), Prefill(96, 33, 16, 96)))
GROWTH = cost_growth.Sizes(
    contexts=(64, 256),
    sequences=2,
    steps=3,
    cached=(2, 5),
    cached_tokens=64,
    matches=3,
    memory_sequences=4,
    memory_tokens=64,
)

TINY: dict[str, list[Case]] = {
    "P1": decode_step.cases(DECODE),
    "P2": scheduler_step.cases(SCHEDULER),
    "P3": prefix_match.cases(MATCH),
    "P4": prefill_chunks.cases(CHUNKS),
    "P4b": finish.cases(FINISH),
    "P5": windowed_pages.cases(PAGES),
    "P6": cost_growth.cases(GROWTH),
}


def test_every_bar_has_a_tiny_form() -> None:
    assert TINY.keys() == BARS.keys()


@pytest.mark.parametrize("case", [case for cases in TINY.values() for case in cases], ids=lambda case: case.what)
def test_a_case_samples_numbers(case: Case) -> None:
    samples = case.sample()

    assert samples and np.isfinite(samples).all()


@pytest.mark.parametrize("bar", BARS)
def test_a_bar_names_itself_and_its_limits(bar: str) -> None:
    cases = BARS[bar]()

    assert {case.bar for case in cases} == {bar}
    assert sum(case.limit is not None for case in cases) >= len(cases) - 3
    assert len({case.what for case in cases}) == len(cases)


def test_decode_steps_on_a_full_pool_evict() -> None:
    batch = decode_step.start(DECODE, 3, "cached")
    free = batch.manager.statistics().pools[0].free

    for _ in range(2 * BLOCK):
        batch.step(np.full(3, 7, np.int32))

    assert free < 3
    batch.manager.audit()


@pytest.mark.parametrize(("part", "reused"), [("whole", 255), ("half", 128), ("miss", 0)])
def test_a_match_finds_what_the_case_says(part: str, reused: int) -> None:
    manager = prefix_match.cached_prompt(256, 4)

    assert manager.probe(prefix_match.question(256, part)(0)).reused == reused


@pytest.mark.parametrize(
    ("one", "with_scratch", "plain"), [(windowed_pages.EXAMPLE, 5, 32), (windowed_pages.LONG, 5, 34)]
)
def test_the_named_prefills_by_the_formula(one: Prefill, with_scratch: int, plain: int) -> None:
    assert (one.scratch_peak, one.plain_peak) == (with_scratch, plain)


def test_the_peak_is_counted_and_the_pool_holds_no_more() -> None:
    assert windowed_pages.slots_needed(windowed_pages.EXAMPLE) == 5
    assert windowed_pages.prefill(windowed_pages.EXAMPLE, 5) == 5
