"""O31: a waiting request was counted at every look-up, and a preempted one matched its own blocks."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, run_step, start
from tidegate.testing.layouts import full, stacked

PROMPT = [token % 13 for token in range(64)]


def blocks_of_sixteen(num_slots: int) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=stacked(full()),
            max_sequences=4,
            max_seq_len=128,
            pool_slots=(num_slots,),
            tokens_per_block=16,
            enable_partial_reuse=False,
        )
    )


def test_retries_and_resumes_do_not_count_again() -> None:
    driver = blocks_of_sixteen(8)
    driver.close(start(driver, PROMPT[:49]))
    blocker = start(driver, [20] * 80)
    before = driver.manager.statistics()
    candidate = driver.manager.candidate(PROMPT)
    for _ in range(9):
        assert driver.plan(admit=[(candidate, 64)], grow=[(blocker, 128)]) is None
    driver.close(blocker)

    step = run_step(driver, admit=[(candidate, 64)])
    assert step is not None
    admitted = driver.manager.statistics()
    assert admitted.query_tokens - before.query_tokens == 64
    assert admitted.hit_tokens - before.hit_tokens == 48

    row = step.sequences[0].row
    decode(driver, row, 10)
    waiting = driver.suspend(row)
    assert run_step(driver, admit=[(waiting, waiting.num_tokens)])
    resumed = driver.manager.statistics()
    assert (resumed.query_tokens, resumed.hit_tokens) == (admitted.query_tokens, admitted.hit_tokens)
    assert resumed.rematched_tokens - admitted.rematched_tokens == 64


def test_prompts_without_a_shared_prefix_hit_nothing_under_preemption() -> None:
    driver = blocks_of_sixteen(16)
    for number in range(200):
        row = start(driver, [number % 31, number // 31, *PROMPT[: number % 40]])
        waiting = driver.suspend(row)
        step = run_step(driver, admit=[(waiting, waiting.num_tokens)])
        assert step is not None
        driver.close(step.sequences[0].row)

    assert driver.manager.statistics().hit_tokens == 0


def test_a_rolled_back_admission_is_not_counted() -> None:
    driver = blocks_of_sixteen(16)
    before = driver.manager.statistics()
    plan = driver.plan(admit=[(driver.manager.candidate(PROMPT), 64)])
    assert plan is not None
    with driver.manager.reserve(plan.quote):
        pass

    assert driver.manager.statistics().query_tokens == before.query_tokens
