"""O32: correct zero hits, because the match unit was larger than the shared prefix, and nothing said so."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked

SYSTEM = [token % 17 for token in range(240)]


def traffic(*, unit: int | None, partial: bool, shared: bool = True) -> tuple[StepDriver, list[int]]:
    """Run 20 prompts of 260 tokens over groups with blocks of 32 and 16; return what each reused."""
    driver = drive(
        KVCacheConfig(
            layers=stacked(full(block_tokens=32), full(block_tokens=16)),
            max_sequences=2,
            max_seq_len=320,
            pool_slots=(260, 520),
            tokens_per_block=32,
            reuse_unit_tokens=unit,
            enable_partial_reuse=partial,
        )
    )
    reused = []
    for number in range(20):
        head = SYSTEM if shared else [number, *SYSTEM[1:]]
        prompt = [*head, *[number + 40] * 20]
        reused.append(driver.manager.lookup(driver.manager.candidate(prompt)))
        driver.close(start(driver, prompt))
    return driver, reused


@pytest.mark.parametrize(
    ("unit", "partial", "match_unit", "reused"),
    [(256, False, 256, 0), (256, True, 256, 240), (None, False, 32, 224)],
)
def test_reuse_follows_the_unit_that_is_reported(unit: int | None, partial: bool, match_unit: int, reused: int) -> None:
    driver, found = traffic(unit=unit, partial=partial)

    assert driver.manager.match_unit == match_unit
    assert found == [0] + [reused] * 19


def test_a_look_up_says_why_not_more() -> None:
    driver, _ = traffic(unit=256, partial=False)

    assert "256" in driver.manager.probe([*SYSTEM, 1, 2]).explain()
    assert "nothing" in driver.manager.probe([50, *SYSTEM]).explain()


@pytest.mark.parametrize(("unit", "partial", "lost"), [(256, False, 19 * 240), (256, True, 0), (None, False, 19 * 16)])
def test_tokens_lost_to_granularity_are_counted(unit: int | None, partial: bool, lost: int) -> None:
    driver, _ = traffic(unit=unit, partial=partial)
    found = driver.manager.statistics()

    assert found.match_unit == driver.manager.match_unit
    assert found.lost_to_granularity_tokens == lost
    assert found.requests_without_match == 1


def test_traffic_without_a_shared_prefix_loses_nothing() -> None:
    driver, _ = traffic(unit=None, partial=False, shared=False)
    found = driver.manager.statistics()

    assert (found.hit_tokens, found.lost_to_granularity_tokens) == (0, 0)
