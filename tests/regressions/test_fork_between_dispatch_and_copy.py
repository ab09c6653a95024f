"""A fork took its state page at once, from the slot whose content a dispatched step was still to copy."""

from __future__ import annotations

from tidegate.cache import Candidate, KVCacheConfig, KVCacheManager
from tidegate.testing import FakeEngine, StepDriver
from tidegate.testing.driver import OpenStep
from tidegate.testing.layouts import stacked, state


def test_a_fork_takes_no_page() -> None:
    layers = stacked(state())
    manager = KVCacheManager(
        KVCacheConfig(layers=layers, max_sequences=4, max_seq_len=32, tokens_per_block=4, pool_slots=(4,))
    )
    driver = StepDriver(manager, FakeEngine(layers, vocab_size=3))

    def dispatched(tokens: list[int]) -> OpenStep:
        candidate: Candidate = manager.candidate(tokens)
        plan = driver.plan((), [(candidate, len(tokens))])
        assert plan is not None
        return driver.open(plan)[0]

    def ran(tokens: list[int]) -> int:
        step = dispatched(tokens)
        driver.execute(step)
        driver.settle()
        return step.sequences[0].row

    cached = [0, 1, 2, 0, 1, 2, 0, 1]
    driver.close(ran(cached))
    other = ran([2, 2, 2])
    step = dispatched([*cached, 1, 1])
    twins = [driver.fork(other) for _ in range(2)]
    manager.audit()
    driver.execute(step)  # the engine's fingerprints tell whether the state came over
    driver.settle()
    for row in (other, *twins):
        plan = driver.plan([(row, int(manager.capacity[row]) + 1)])
        if plan is None:  # four slots: some have to end first
            driver.close(step.sequences[0].row)
            plan = driver.plan([(row, int(manager.capacity[row]) + 1)])
        assert plan is not None
        driver.execute(driver.open(plan)[0])
        driver.settle()
        manager.audit()
        driver.close(row)
    manager.audit()
