"""Lengths a request declares worth keeping: a chunk ends there, and others may begin there."""

from __future__ import annotations

import pytest

from tidegate.base import BufferSpec, ConfigError, LayerSpec
from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import PlanningRun, make_request

STATE = LayerSpec(1, "linear_attention", (BufferSpec("state", 4096),))
SYSTEM = list(range(100, 122))  # 22 tokens: 20 of them in whole blocks


def run_of(*, checkpoints: str, second: LayerSpec | None = None, **config: object) -> PlanningRun:
    values = {"max_num_tokens": 64, "max_batch_size": 4, **config}
    return PlanningRun(
        KVCacheConfig(
            layers=stacked(full(), second or window(8)),
            max_sequences=4,
            max_seq_len=128,
            tokens_per_block=4,
            pool_slots=(128,) if second in (None, full()) else (128, 16),
            window_checkpoints=checkpoints,
        ),
        SchedulerConfig(**values),  # type: ignore[arg-type]  # as given by each test
    )


def chunk_ends(run: PlanningRun) -> list[int]:
    run.run()
    return [end for plan in run.plans for end in [a.end for a in plan.admissions] + [c.end for c in plan.chunks]]


@pytest.mark.parametrize("second", [None, STATE])
@pytest.mark.parametrize("checkpoints", ["declared", "every_chunk"])
def test_another_prompt_begins_at_the_declared_end(checkpoints: str, second: LayerSpec | None) -> None:
    run = run_of(checkpoints=checkpoints, second=second)
    run.submit(make_request("a", [*SYSTEM, *range(40)], declared=(len(SYSTEM),)))
    run.run()
    follower = make_request("b", [*SYSTEM, *range(50, 80)])

    assert run.manager.probe(follower.prompt).reused == 20


def test_without_it_windows_keep_nothing_there() -> None:
    run = run_of(checkpoints="every_chunk")
    run.submit(make_request("a", [*SYSTEM, *range(40)]))
    run.run()

    assert run.manager.probe(make_request("b", [*SYSTEM, *range(50, 80)]).prompt).reused == 0


def test_chunks_end_at_each_declared_block_border_and_at_the_budget() -> None:
    run = run_of(checkpoints="declared", max_num_tokens=16)
    run.submit(make_request("a", 50, declared=(41, 22, 3)))

    assert chunk_ends(run) == [16, 20, 36, 40, 50]


def test_a_length_already_cached_cuts_nothing() -> None:
    run = run_of(checkpoints="declared")
    run.submit(make_request("a", [*SYSTEM, *range(40)], declared=(len(SYSTEM),)))
    run.run()
    run.plans.clear()
    run.submit(make_request("b", [*SYSTEM, *range(50, 80)], declared=(len(SYSTEM),)))

    assert chunk_ends(run) == [52]


def test_a_length_nearer_than_the_distance_is_kept_too() -> None:
    run = run_of(checkpoints="every:64")
    run.submit(make_request("a", [*SYSTEM, *range(40)], declared=(len(SYSTEM),)))
    run.run()

    assert run.manager.probe(make_request("b", [*SYSTEM, *range(50, 80)]).prompt).reused == 20


@pytest.mark.parametrize("fields", [{"access": "read"}, {"access": "none"}, {"prompt_logprobs": True}])
def test_who_keeps_nothing_is_not_cut(fields: dict[str, object]) -> None:
    run = run_of(checkpoints="declared")
    run.submit(make_request("a", [*SYSTEM, *range(40)], declared=(len(SYSTEM),), **fields))

    assert chunk_ends(run) == [62]


def test_full_attention_alone_needs_no_cut() -> None:
    run = run_of(checkpoints="declared", second=full())
    run.submit(make_request("a", [*SYSTEM, *range(40)], declared=(len(SYSTEM),)))

    assert chunk_ends(run) == [62]


@pytest.mark.parametrize("declared", [(0,), (51,), (True,), (1.5,), [3], "ab", tuple(range(1, 67))])
def test_odd_lengths_are_refused(declared: object) -> None:
    with pytest.raises(ConfigError, match="declared"):
        make_request("a", 50, declared=declared)
