"""A closing sequence's end was filed in another's open leaf, and others then read pages of the wrong text."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.testing import FakeEngine, StepDriver
from tidegate.testing.layouts import stacked, window

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_end_stays_with_its_own_text() -> None:
    layers = stacked(window(2))
    config = KVCacheConfig(
        layers=layers,
        max_sequences=4,
        max_seq_len=32,
        tokens_per_block=4,
        pool_slots=(12,),
        swa_scratch_reuse=False,
    )
    manager = KVCacheManager(config)
    driver = StepDriver(manager, FakeEngine(layers, vocab_size=64))

    def start(tokens: list[int]) -> int:
        plan = driver.plan((), [(manager.candidate(tokens), len(tokens))])
        assert plan is not None
        step, _ = driver.open(plan)
        driver.execute(step)
        driver.settle()
        return step.sequences[-1].row

    driver.close(start(PROMPT))
    first = start([*PROMPT, 50, 51])
    for i in range(6):  # the checkpoint at 8 is evicted, and its node goes with it
        driver.close(start([20 + i, 20 + i, 20 + i, 20 + i, 9]))
    second = start(PROMPT)
    driver.close(first)
    for _ in range(5):
        plan = driver.plan([(second, int(manager.capacity[second]) + 1)])
        assert plan is not None
        driver.execute(driver.open(plan)[0])
        driver.settle()
    manager.audit()
    follower = [*driver.running[second].model.tokens[:10], 0]
    assert manager.probe(follower).reused == 8
    start(follower)
    manager.audit()
