"""A rolled back reservation forgot that a row's last page is shared, and the next step wrote into it."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import decode, drive, expected, start
from tidegate.testing.layouts import full, stacked

PROMPT = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_dispatched", [False, True])
def test_a_fork_copies_the_page_it_shares(is_dispatched: bool) -> None:
    driver = drive(
        KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=64, pool_slots=(32,), tokens_per_block=8)
    )
    row = start(driver, PROMPT)
    child = driver.fork(row)
    plan = driver.plan(grow=[(child, 6)])
    assert plan is not None
    with driver.manager.reserve(plan.quote) as reservation:
        if is_dispatched:
            driver.manager.copy_pages(reservation.dispatch().copies)

    shared = int(driver.arenas[0][row, 0])
    decode(driver, child, 1)

    assert int(driver.arenas[0][row, 0]) == shared != int(driver.arenas[0][child, 0])
    assert decode(driver, row, 4) == expected(driver, PROMPT, 5)[1:]
