"""Whole requests on a step driver: prefill in chunks, decode greedily, end."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.cache import KVCacheConfig, KVCacheManager, ReuseScope
from tidegate.testing.driver import Admission, Growth, OpenStep, StepDriver
from tidegate.testing.fake_engine import FakeEngine

PLAIN = ReuseScope()
"""The scope of requests that name none."""


def drive(config: KVCacheConfig, *, declares: bool = True) -> StepDriver:
    """Return a driver over a new manager and a fake engine with the configured layers."""
    return StepDriver(KVCacheManager(config), FakeEngine(config.layers), declares=declares)


def run_step(driver: StepDriver, grow: Sequence[Growth] = (), admit: Sequence[Admission] = ()) -> OpenStep | None:
    """Run one whole step without overlap; None when it does not fit."""
    plan = driver.plan(grow, admit)
    if plan is None:
        return None
    step, _ = driver.open(plan)
    driver.execute(step)
    driver.settle()
    return step


def start(driver: StepDriver, tokens: Sequence[int], chunk: int | None = None, scope: ReuseScope = PLAIN) -> int:
    """Admit a prompt, prefill it in chunks of at most ``chunk``, and return its row."""
    candidate = driver.manager.candidate(tokens, scope)
    first = driver.manager.lookup(candidate) + (chunk or len(tokens))
    step = run_step(driver, admit=[(candidate, min(len(tokens), first))])
    assert step is not None, "the prompt does not fit"
    row = step.sequences[0].row
    while (history := driver.running[row].model.history) < len(tokens):
        end = min(len(tokens), history + (chunk or len(tokens)))
        assert run_step(driver, grow=[(row, end)]) is not None, "the next chunk does not fit"
    return row


def decode(driver: StepDriver, row: int, count: int) -> list[int]:
    """Decode one sequence, a token a step, and return the new tokens."""
    model = driver.running[row].model
    known = len(model.tokens)
    for _ in range(count):
        assert run_step(driver, grow=[(row, model.history + 1)]) is not None, "the next token does not fit"
    return model.tokens[known:]


def generate(
    driver: StepDriver, tokens: Sequence[int], count: int, chunk: int | None = None, scope: ReuseScope = PLAIN
) -> list[int]:
    """Run one request from prompt to end and return the ``count`` tokens it produced."""
    row = start(driver, tokens, chunk, scope)
    model = driver.running[row].model
    decode(driver, row, count - 1)
    driver.close(row)
    return model.tokens[len(tokens) :]


def expected(driver: StepDriver, tokens: Sequence[int], count: int, scope: ReuseScope = PLAIN) -> list[int]:
    """Return what a greedy run produces after ``tokens`` with no cache at all."""
    return driver.engine.continuation(tokens, count, driver.salt_of(scope))
