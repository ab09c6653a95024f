"""``FixedWait`` against worked numbers, a table by hand, and a second transcription of the original."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import pytest

from tests.scheduling.balance.fleets import counts
from tidegate.base import ConfigError, Int64Array
from tidegate.scheduling import Decision, FixedWait, rank_row
from tidegate.scheduling.balance import FixedWaitState

SEED = 20_31
BY_HAND = [
    # ctx, decodes and padding of two ranks; held; wait and batch afterwards. timeout 3, batching 2, 4 seats.
    ((1, 0), (2, 2), (0, 0), True, (1, 0)),
    ((1, 0), (2, 2), (0, 0), True, (2, 0)),
    ((1, 0), (2, 2), (0, 0), False, (0, 0)),  # held limit - 1 times, released on pass `limit`
    ((1, 1), (2, 2), (0, 0), True, (0, 1)),
    ((1, 0), (2, 2), (0, 0), True, (1, 1)),  # alignment flickers: batch survives
    ((2, 1), (2, 2), (0, 0), True, (0, 2)),
    ((2, 1), (2, 2), (0, 0), False, (0, 0)),
    ((0, 0), (2, 2), (0, 0), True, (1, 0)),  # wait runs while nobody has a prefill
    ((0, 0), (2, 2), (0, 0), True, (2, 0)),
    ((1, 0), (2, 2), (0, 0), False, (0, 0)),
    ((1, 1), (4, 2), (0, 0), True, (1, 0)),  # a full rank
    ((1, 1), (3, 2), (0, 0), True, (0, 1)),
    ((1, 1), (0, 2), (0, 0), False, (0, 1)),  # a rank without decodes: at once, and batch stays
    ((1, 0), (0, 2), (0, 0), False, (0, 1)),
    ((1, 1), (0, 2), (1, 0), True, (0, 2)),  # padding counts as a decode
    ((1, 1), (2, 2), (0, 0), False, (0, 0)),
    ((0, 1), (0, 0), (1, 1), True, (1, 0)),  # padding only
    ((0, 1), (0, 0), (1, 1), True, (2, 0)),
    ((0, 1), (0, 2), (0, 0), False, (0, 0)),
    ((1, 1), (3, 1), (1, 0), True, (1, 0)),  # padding fills the last seat
]


def held_steps(policy: FixedWait, steps: Sequence[Int64Array]) -> list[bool]:
    state, held = policy.start(), []
    for rows in steps:
        state, decision = policy.decide(state, rows)
        held.append(decision.hold)
    return held


def flickering_table(num_steps: int, num_ranks: int, seats: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Steps of (ctx, gen_real, gen_pad), in spells: aligned, ragged, idle, a rank full, padding only, anything."""
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    table: list[tuple[list[int], list[int], list[int]]] = []
    while len(table) < num_steps:
        spell = rng.integers(6)
        for _ in range(rng.integers(1, 12)):
            ctx = rng.integers(0, 3, num_ranks)
            gen, pad = rng.integers(1, seats, num_ranks), np.zeros(num_ranks, dtype=np.int64)
            if spell == 0:
                ctx = ctx + (rng.random() < 0.9)
            elif spell == 1:
                ctx[rng.integers(num_ranks)] = 0
            elif spell == 2:
                ctx[:] = 0
            elif spell == 3:
                ctx, gen[rng.integers(num_ranks)] = ctx + 1, seats
            elif spell == 4:
                gen[:], pad[:] = 0, rng.integers(0, 2) | (rng.random(num_ranks) < 0.5)
            else:
                gen, pad = rng.integers(0, seats + 1, num_ranks), rng.integers(0, 2, num_ranks)
            table.append((ctx.tolist(), gen.tolist(), pad.tolist()))
    return table[:num_steps]


def original(
    table: list[tuple[list[int], list[int], list[int]]], seats: int, timeout: int, batching: int
) -> Iterator[list[list[int]]]:
    """Yield per step the prefills that each rank keeps, as numbers of a list."""
    passes = {"unaligned": 0, "aligned": 0}
    for ctx, real, padding in table:
        generations = [sum(pair) for pair in zip(real, padding, strict=True)]
        everything, nothing = [list(range(c)) for c in ctx], [[] for _ in ctx]  # type: list[list[int]], list[list[int]]
        match (min(ctx) >= 1 and max(generations) <= seats - 1, min(generations) >= 1):
            case (True, True):
                passes["unaligned"] = 0
                goes = passes["aligned"] == batching
                passes["aligned"] = 0 if goes else passes["aligned"] + 1
            case (True, False):
                passes["unaligned"], goes = 0, True
            case (False, has_decodes):
                passes["unaligned"] += 1
                goes = not has_decodes or passes["unaligned"] == timeout
                passes["unaligned"] *= not goes
        yield everything if goes else nothing


@pytest.mark.parametrize(("timeout", "batching"), [(50, 10), (7, 3), (1, 0), (4, 1)])
def test_replay_releases_what_the_original_does(timeout: int, batching: int) -> None:
    table = flickering_table(500, num_ranks=4, seats=6)
    expected = [any(kept) for kept in original(table, 6, timeout, batching)]

    held = held_steps(FixedWait(6, timeout, batching, replay=True), [counts(*step) for step in table])

    released = [any(ctx) and not is_held for (ctx, _, _), is_held in zip(table, held, strict=True)]
    assert released == expected
    assert 0 < sum(released) < len(table)


def test_replay_does_as_worked_out_by_hand() -> None:
    policy = FixedWait(4, 3, 2, replay=True)
    state, found = policy.start(), []
    for ctx, gen, pad, *_ in BY_HAND:
        state, decision = policy.decide(state, counts(ctx, gen, pad))
        found.append((decision.hold, (state.wait, state.batch)))

    assert found == [(held, counters) for *_, held, counters in BY_HAND]


def test_second_transcription_does_as_worked_out_by_hand() -> None:
    table = [(list(ctx), list(gen), list(pad)) for ctx, gen, pad, *_ in BY_HAND]

    released = [any(kept) for kept in original(table, seats=4, timeout=3, batching=2)]

    assert released == [not held and any(ctx) for ctx, _, _, held, _ in BY_HAND]


@pytest.mark.parametrize("replay", [False, True])
def test_unaligned_prefill_is_held_limit_minus_one_passes(replay: bool) -> None:
    steps = list(repeat(counts([1, 0], [3, 3]), 100))

    held = held_steps(FixedWait(8, 50, 10, replay=replay), steps)

    assert held == ([True] * 49 + [False]) * 2


@pytest.mark.parametrize("replay", [False, True])
def test_aligned_prefill_is_held_batching_wait_iters_passes(replay: bool) -> None:
    steps = list(repeat(counts([1, 2], [3, 3]), 22))

    held = held_steps(FixedWait(8, 50, 10, replay=replay), steps)

    assert held == ([True] * 10 + [False]) * 2


def test_wait_starts_over_while_no_rank_has_a_prefill() -> None:
    ragged, idle = counts([1, 0], [3, 3]), counts([0, 0], [3, 3])

    assert held_steps(FixedWait(8, 3, 0), [ragged, ragged, idle, ragged, ragged, ragged])[3:] == [True, True, False]
    assert held_steps(FixedWait(8, 3, 0, replay=True), [ragged, ragged, idle, ragged])[2:] == [False, True]


def test_padding_counts_as_a_decode_only_in_replay() -> None:
    rows = counts([1, 1], [0, 2], [1, 0])

    assert held_steps(FixedWait(8, 50, 10), [rows]) == [False]
    assert held_steps(FixedWait(8, 50, 10, replay=True), [rows]) == [True]


def test_padding_takes_a_seat_only_in_replay() -> None:
    policy, rows = FixedWait(4, 50, 1), counts([1, 1], [3, 3], [1, 0])

    assert policy.decide(policy.start(), rows)[0] == FixedWaitState(wait=0, batch=1)
    replay = FixedWait(4, 50, 1, replay=True)
    assert replay.decide(replay.start(), rows)[0] == FixedWaitState(wait=1, batch=0)


def test_long_prompt_waits_for_its_first_chunk_only() -> None:
    first = np.stack([rank_row(ctx=1, first=1, gen_real=3), rank_row(gen_real=3)])
    later = np.stack([rank_row(ctx=1, gen_real=3), rank_row(gen_real=3)])

    held = held_steps(FixedWait(8, 50, 10), [first] * 50 + [later] * 63)

    assert held == [True] * 49 + [False] * 64


def test_only_replay_holds_later_chunks() -> None:
    rows = counts([1, 0], [3, 3])
    default, replay = FixedWait(8), FixedWait(8, replay=True)

    assert default.decide(default.start(), rows)[1] == Decision(hold=True)
    assert replay.decide(replay.start(), rows)[1] == Decision(hold=True, holds_all_chunks=True)


@pytest.mark.parametrize("field", ["max_batch_size", "timeout_iters", "batching_wait_iters"])
def test_illegal_count_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}=-1 must be an integer in"):
        FixedWait(**{"max_batch_size": 8, field: -1})  # type: ignore[arg-type]  # replay is not among them
