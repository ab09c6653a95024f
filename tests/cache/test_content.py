"""Outputs equal those of a run without a cache, whatever the model and whatever happened to the pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.base import EngineError
from tidegate.cache import KVCacheConfig, ReuseScope
from tidegate.testing.cache_walk import VOCAB_SIZE, build_config
from tidegate.testing.choices import seeded
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, generate, run_step, start
from tidegate.testing.layouts import build_prompt, build_texts, full, stacked, state, window


@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_requests_with_shared_prefixes_produce_what_no_cache_would(seed: int, declares: bool) -> None:
    print(f"seed {seed}")
    choose = seeded(seed)
    config = replace(build_config(choose), max_seq_len=64)
    # A window of one reads only itself, so an undeclared engine could not know what came before.
    if not declares and all(layer.window == 1 or layer.ratio > 1 for layer in config.layers):
        pytest.skip("no layer tells an undeclared engine its prefix")
    driver = drive(config, declares=declares)
    texts = build_texts(choose, 4, 48, VOCAB_SIZE)
    for _ in range(12):
        prompt = build_prompt(choose, texts, 48, VOCAB_SIZE)
        chunk = choose(1, 48)

        assert generate(driver, prompt, 4, chunk) == expected(driver, prompt, 4)
        driver.manager.audit()


MODELS = {
    "full": stacked(full(), full()),
    "window": stacked(window(6), window(6)),
    "window with sinks": stacked(window(6, sink_tokens=3)),
    "mixed": stacked(full(), window(6), window(6)),
    "state": stacked(full(), state()),
}


@pytest.fixture(params=MODELS)
def driver(request: pytest.FixtureRequest) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=MODELS[request.param],
            max_sequences=4,
            max_seq_len=64,
            device_bytes=1 << 16,
            tokens_per_block=4,
        )
    )


PROMPT = [token % 5 for token in range(21)]


def test_two_forks_write_apart(driver: StepDriver) -> None:
    row = start(driver, PROMPT)
    child = driver.fork(row)

    first = decode(driver, row, 6)
    second = decode(driver, child, 6)

    assert first == second == expected(driver, PROMPT, 7)[1:]
    driver.close(row)
    assert decode(driver, child, 3) == expected(driver, PROMPT, 10)[7:]


def test_a_suspended_sequence_resumes_where_it_was(driver: StepDriver) -> None:
    row = start(driver, PROMPT)
    decode(driver, row, 3)
    waiting = driver.suspend(row)
    assert driver.manager.quote().supply == tuple(pool.slots for pool in driver.manager.statistics().pools)

    step = run_step(driver, admit=[(waiting, waiting.num_tokens)])

    assert step is not None
    model = step.sequences[0].model
    assert model.tokens[len(PROMPT) :] == expected(driver, PROMPT, 5)


def test_scopes_never_read_each_other(driver: StepDriver) -> None:
    scopes = [ReuseScope(salt=str(i)) for i in range(3)]
    for scope in scopes * 2:
        assert generate(driver, PROMPT, 3, scope=scope) == expected(driver, PROMPT, 3, scope)


def test_new_weights_start_from_nothing(driver: StepDriver) -> None:
    generate(driver, PROMPT, 3)
    driver.manager.reuse.new_weights_epoch()
    driver.weights_epoch += 1

    assert driver.manager.probe(PROMPT).reused == 0
    assert generate(driver, PROMPT, 3) == expected(driver, PROMPT, 3)


def test_a_failed_forward_is_repeated(driver: StepDriver) -> None:
    row = start(driver, PROMPT)
    plan = driver.plan(grow=[(row, 22)])
    assert plan is not None
    driver.engine.fail_next()
    with pytest.raises(EngineError, match="as told"), driver.manager.reserve(plan.quote) as reservation:
        driver.execute(driver.begin(reservation.dispatch(), reservation.admitted))
    driver.manager.audit()

    assert decode(driver, row, 4) == expected(driver, PROMPT, 5)[1:]


def test_overlapped_steps_decode_the_same(driver: StepDriver) -> None:
    row = start(driver, PROMPT)
    for end in range(22, 30):
        plan = driver.plan(grow=[(row, end)])
        assert plan is not None
        driver.open(plan)
        if len(driver.open_steps) == 2:
            driver.execute(driver.open_steps[0])
            driver.settle()

    assert driver.running[row].model.tokens[21:] == expected(driver, PROMPT, 8)
