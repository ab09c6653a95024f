"""O05: a long chunked prefill pinned the windowed pool and waited for itself."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, run_step
from tidegate.testing.layouts import stacked, window
from tidegate.testing.table_check import owned_blocks

PROMPT = [token * 7 % 31 for token in range(2000)]


def one_window(num_slots: int) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=stacked(window(32)),
            max_sequences=4,
            max_seq_len=2048,
            pool_slots=(num_slots,),
            tokens_per_block=16,
            swa_scratch_reuse=False,
            enable_prefix_caching=False,
        )
    )


def test_blocks_out_of_the_window_are_free_before_the_next_chunk_is_judged() -> None:
    driver = one_window(52)
    before = driver.manager.quote().supply

    step = run_step(driver, admit=[(driver.manager.candidate(PROMPT), 512)])
    assert step is not None
    row = step.sequences[0].row
    assert owned_blocks(driver.arenas[0], row) == {30, 31}
    assert driver.manager.quote().supply == (before[0] - 2,)

    peaks = []
    for end in (1024, 1536, 2000):
        plan = driver.plan(grow=[(row, end)])
        assert plan is not None
        opened, _ = driver.open(plan)
        peaks.append(len(owned_blocks(driver.arenas[0], row)))
        driver.execute(opened)
        driver.settle()
    assert max(peaks) <= 34
    assert decode(driver, row, 2) == expected(driver, PROMPT, 3)[1:]


def test_a_chunk_planned_over_an_unsettled_one_may_wait_but_finishes() -> None:
    driver = one_window(52)
    first = driver.plan(admit=[(driver.manager.candidate(PROMPT), 512)])
    assert first is not None
    step, _ = driver.open(first)
    row = step.sequences[0].row

    assert driver.plan(grow=[(row, 1024)]) is None
    cut = driver.plan(grow=[(row, 768)])
    assert cut is not None
    second, _ = driver.open(cut)
    for opened in (step, second):
        driver.execute(opened)
        driver.settle()
    for end in (1280, 1792, 2000):
        assert run_step(driver, grow=[(row, end)])
    assert decode(driver, row, 2) == expected(driver, PROMPT, 3)[1:]
