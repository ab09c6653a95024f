"""A prefill that was reserved and then deferred gives everything back: the two failures the design must exclude."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.base import RequestTooLong, StateError
from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, expected, run_step, start
from tidegate.testing.layouts import full, stacked, window

PROMPT = [token * 11 % 31 for token in range(965)]


def one_rank(num_slots: int = 80) -> StepDriver:
    return drive(
        KVCacheConfig(
            layers=stacked(full(), *[window(128)] * 3),
            max_sequences=4,
            max_seq_len=1024,
            pool_slots=(num_slots, num_slots),
            tokens_per_block=32,
            separate_pools=True,
        )
    )


def roll_back(driver: StepDriver, admit_end: int | None = None, grow: tuple[int, int] | None = None) -> None:
    candidate = driver.manager.candidate(PROMPT)
    plan = driver.plan(grow=[grow] if grow else (), admit=[(candidate, admit_end)] if admit_end else ())
    assert plan is not None
    with driver.manager.reserve(plan.quote):
        pass


def free(driver: StepDriver) -> tuple[int, ...]:
    return tuple(pool.free for pool in driver.manager.statistics().pools)


def test_a_fresh_context_of_965_tokens_shrinks_back_to_nothing() -> None:
    driver = one_rank()
    before = free(driver)

    for _ in range(10):
        roll_back(driver, admit_end=965)
        assert free(driver) == before == (80, 80)
        driver.manager.audit()

    row = start(driver, PROMPT)
    assert decode(driver, row, 5) == expected(driver, PROMPT, 6)[1:]
    assert driver.manager.statistics().requests == 1


def test_a_deferred_context_leaves_room_for_others_while_it_waits() -> None:
    driver = one_rank(num_slots=32)
    roll_back(driver, admit_end=965)

    other = start(driver, [7] * 960)
    assert decode(driver, other, 2) == expected(driver, [7] * 960, 3)[1:]
    driver.close(other)
    row = start(driver, PROMPT)
    assert decode(driver, row, 5) == expected(driver, PROMPT, 6)[1:]


def test_a_context_with_live_scratch_returns_to_its_first_chunk() -> None:
    driver = one_rank()
    row = start_chunk(driver, 512)
    before, tables = free(driver), [arena[row].tolist() for arena in driver.arenas]

    for _ in range(10):
        roll_back(driver, grow=(row, 965))
        assert free(driver) == before
        assert [arena[row].tolist() for arena in driver.arenas] == tables
        assert int(driver.manager.capacity[row]) == 512
        driver.manager.audit()

    assert run_step(driver, grow=[(row, 965)])
    assert decode(driver, row, 5) == expected(driver, PROMPT, 6)[1:]


def start_chunk(driver: StepDriver, end: int) -> int:
    step = run_step(driver, admit=[(driver.manager.candidate(PROMPT), end)])
    assert step is not None
    return step.sequences[0].row


@pytest.mark.parametrize("ends", [(965, 512), (965, 640, 512), (965, 900, 965, 512), (520, 512)])
def test_a_planned_step_moves_freely_down_to_its_start(ends: tuple[int, ...]) -> None:
    driver = one_rank()
    row = start_chunk(driver, 512)
    before = free(driver)

    for end in ends:
        plan = driver.plan(grow=[(row, end)])
        assert plan is not None
        with driver.manager.reserve(plan.quote) as reservation:
            reservation.keep()
        driver.manager.audit()

    assert free(driver) == before
    assert int(driver.manager.capacity[row]) == 512
    assert run_step(driver, grow=[(row, 965)])
    assert decode(driver, row, 5) == expected(driver, PROMPT, 6)[1:]


def test_resize_up_and_down_by_an_embedder_is_free_of_charge() -> None:
    manager = one_rank().manager
    sequence = manager.create(PROMPT)
    before = manager.quote().supply

    for capacity in (965, 0, 965, 300, 700, 0):
        assert sequence.resize(capacity)
        manager.audit()

    assert manager.quote().supply == before
    sequence.close()
    assert tuple(pool.free for pool in manager.statistics().pools) == (80, 80)


def test_resize_that_does_not_fit_changes_nothing() -> None:
    manager = one_rank(num_slots=20).manager
    sequence = manager.create(PROMPT)
    assert sequence.resize(512)
    before = manager.quote().supply

    assert not sequence.resize(965, history_length=512)

    assert manager.quote().supply == before
    assert (sequence.history, sequence.capacity) == (0, 512)
    manager.audit()


@pytest.mark.parametrize("capacity", [-1, 1025])
def test_a_capacity_out_of_range_is_misuse(capacity: int) -> None:
    sequence = one_rank().manager.create(PROMPT)

    with pytest.raises((StateError, RequestTooLong)):
        sequence.resize(capacity)


@pytest.mark.parametrize("abort", [lambda reservation: None, lambda reservation: reservation.dispatch()])
def test_tokens_after_a_deferral_equal_those_of_a_run_without_one(abort: Callable[[object], object]) -> None:
    driver = one_rank()
    row = start_chunk(driver, 512)
    plan = driver.plan(grow=[(row, 965)])
    assert plan is not None
    with driver.manager.reserve(plan.quote) as reservation:
        abort(reservation)
    driver.manager.audit()

    assert run_step(driver, grow=[(row, 965)])
    assert decode(driver, row, 5) == expected(driver, PROMPT, 6)[1:]
