"""Call names that embedders know, on open reservations: reverting is exact, shortage changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import ConfigError, LayerSpec, StateError
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.request import Request
from tidegate.runtime import ContextAllocator
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import make_request

WINDOWED = stacked(full(), *[window(128)] * 3)


def cache(layers: tuple[LayerSpec, ...] = WINDOWED, slots: int = 80) -> KVCacheManager:
    config = KVCacheConfig(
        layers=layers,
        max_sequences=4,
        max_seq_len=1024,
        pool_slots=(slots,) * len({layer.window for layer in layers}),
        tokens_per_block=32,
        max_chunk_tokens=1024,
    )
    return KVCacheManager(config, with_memory=False)


def state(*managers: KVCacheManager) -> list[object]:
    for manager in managers:
        manager.audit()
    return [
        (m.quote().supply, m.capacity.tolist(), m.history.tolist(), m.num_open.tolist(), m.statistics().requests)
        for m in managers
    ]


def run(allocator: ContextAllocator, request: Request, num_tokens: int, fresh: tuple[int, ...] = ()) -> None:
    begin = allocator.prepare_context(request)
    assert allocator.resize_context(request, num_tokens)
    allocator.dispatch([request]).keep()
    allocator.update(request, begin + num_tokens, fresh)


@pytest.mark.parametrize("chunks", [(965,), (512, 453), (96, 512, 357)])
def test_reverting_is_exact_at_any_chunk_with_scratch_live(chunks: tuple[int, ...]) -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    for done, num_tokens in enumerate(chunks):
        allocator.prepare_context(request)
        before = state(manager)
        for _ in range(10):
            assert allocator.resize_context(request, num_tokens)
            assert state(manager) != before
            allocator.revert_allocate_context(request)
            allocator.revert_allocate_context(request)
            assert state(manager) == before
        run(allocator, request, num_tokens, (7,) if done == len(chunks) - 1 else ())
    assert manager.history.max() == 965
    allocator.free_resources(request)
    manager.audit()


def test_a_retry_that_does_not_grow_forgets_no_baseline() -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    allocator.prepare_context(request)
    before = state(manager)

    assert allocator.resize_context(request, 512)
    assert allocator.resize_context(request, 512)
    assert allocator.resize_context(request, 96)
    allocator.revert_allocate_context(request)

    assert state(manager) == before


def test_growing_what_is_reserved_beyond_the_pool_keeps_what_was_reserved() -> None:
    manager = cache(slots=28)
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    allocator.prepare_context(request)
    assert allocator.resize_context(request, 512)
    reserved = state(manager)

    assert not allocator.resize_context(request, 965)

    assert state(manager) == reserved
    allocator.dispatch([request]).keep()
    allocator.update(request, 512, ())


def test_revert_after_partial_reuse_returns_to_what_was_matched() -> None:
    manager = cache(stacked(full()))
    allocator = ContextAllocator((manager,))
    first = make_request("a", list(range(100)))
    run(allocator, first, 100, (7,))
    allocator.free_resources(first)
    again = make_request("b", [*range(90), 1, 2, 3])
    before = state(manager)

    assert allocator.prepare_context(again) == 90
    assert allocator.resize_context(again, 3)
    allocator.revert_allocate_context(again)

    assert state(manager) == before
    run(allocator, again, 3, (7,))


def test_generation_is_reserved_and_reverted_with_its_drafts() -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 64)
    run(allocator, request, 64, (7,))
    before = state(manager)

    assert allocator.try_allocate_generation(request, 0)
    allocator.revert_allocate_generation(request)
    assert state(manager) == before
    assert allocator.try_allocate_generation(request)
    allocator.dispatch([request]).keep()
    allocator.update(request, 65, (8,))
    assert manager.history.max() == 65


def test_two_caches_reserve_both_or_neither() -> None:
    target, draft = cache(slots=80), cache(stacked(full()), slots=20)
    allocator = ContextAllocator((target, draft))
    request = make_request("r", 965)
    allocator.prepare_context(request)
    before = state(target, draft)

    assert not allocator.resize_context(request, 965)
    assert state(target, draft) == before

    run(allocator, request, 512)
    before = state(target, draft)
    assert not allocator.resize_context(request, 453)
    assert state(target, draft) == before


def test_two_caches_agree_on_one_reused_length() -> None:
    target, draft = cache(stacked(full())), cache(stacked(full()))
    both, alone = ContextAllocator((target, draft)), ContextAllocator((target,))
    first = make_request("a", list(range(64)))
    run(both, first, 64, (7,))
    both.free_resources(first)
    longer = make_request("b", list(range(200)))
    run(alone, longer, alone.managers[0].config.max_seq_len and 136, (7,))
    alone.free_resources(longer)

    assert alone.prepare_context(make_request("c", list(range(300)))) == 200
    assert both.prepare_context(make_request("d", list(range(300)))) == 64


def test_a_suspended_request_comes_back_with_all_it_knew() -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 100)
    run(allocator, request, 100, (7,))
    allocator.suspend_request(request)
    allocator.suspend_request(request)

    begin = allocator.resume_request(request)
    assert allocator.resize_context(request, 101 - begin)
    allocator.dispatch([request]).keep()
    allocator.update(request, 101, (8,))
    assert allocator.try_allocate_generation(request)


def test_several_requests_share_a_step() -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    requests = [make_request(name, 65) for name in "abc"]
    for request in requests:
        allocator.prepare_context(request)
        assert allocator.resize_context(request, 64)
    allocator.revert_allocate_context(requests[1])

    step = allocator.dispatch([requests[2], requests[0]])

    assert step.pages[0].ends.tolist() == [64, 64]
    step.rollback()
    manager.audit()
    assert manager.capacity.max() == 0


def test_freeing_is_idempotent_and_returns_everything() -> None:
    manager = cache()
    free = manager.quote().supply
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    allocator.prepare_context(request)
    assert allocator.resize_context(request, 965)

    allocator.free_resources(request)
    allocator.free_resources(request)

    assert manager.quote().supply == free
    manager.audit()


@pytest.mark.parametrize("num_tokens", [0, -1, 966])
def test_more_than_is_left_of_the_prompt_is_misuse(num_tokens: int) -> None:
    allocator = ContextAllocator((cache(),))
    request = make_request("r", 965)
    allocator.prepare_context(request)

    with pytest.raises(ConfigError, match="num_tokens"):
        allocator.resize_context(request, num_tokens)


def test_calls_in_the_wrong_state_are_misuse() -> None:
    allocator = ContextAllocator((cache(),))
    request = make_request("r", 65)
    with pytest.raises(StateError, match="not prepared"):
        allocator.resize_context(request, 1)
    allocator.prepare_context(request)
    with pytest.raises(StateError, match="nothing reserved"):
        allocator.dispatch([request])
    with pytest.raises(StateError, match="no computed context"):
        allocator.try_allocate_generation(request)
    run(allocator, request, 64)
    with pytest.raises(StateError, match="no computed context"):
        allocator.try_allocate_generation(request)


def test_a_step_that_is_rolled_back_after_dispatch_can_be_tried_again() -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    run(allocator, request, 512)
    before = np.array(manager.capacity)

    assert allocator.resize_context(request, 453)
    allocator.dispatch([request]).rollback()

    assert manager.capacity.tolist() == before.tolist()
    run(allocator, request, 453, (7,))
    manager.audit()


@pytest.mark.parametrize("end", ["keep", "rollback"])
def test_a_step_that_is_over_cannot_be_rolled_back_again(end: str) -> None:
    manager = cache()
    allocator = ContextAllocator((manager,))
    request = make_request("r", 64)
    free = manager.quote().supply
    allocator.prepare_context(request)
    assert allocator.resize_context(request, 64)
    step = allocator.dispatch([request])
    getattr(step, end)()

    with pytest.raises(StateError, match="kept or rolled back"):
        step.rollback()

    if end == "keep":
        allocator.update(request, 64, (7,))
    allocator.free_resources(request)
    assert manager.quote().supply == free
    manager.audit()


def test_the_second_of_two_steps_in_flight_rolls_back_alone() -> None:
    manager = cache()
    free = manager.quote().supply
    allocator = ContextAllocator((manager,))
    request = make_request("r", 965)
    allocator.prepare_context(request)
    assert allocator.resize_context(request, 512)
    allocator.dispatch([request]).keep()

    assert allocator.prepare_context(request) == 512
    assert allocator.resize_context(request, 453)
    allocator.dispatch([request]).rollback()
    allocator.update(request, 512, ())
    run(allocator, request, 453, (7,))

    allocator.free_resources(request)
    assert manager.quote().supply == free
    manager.audit()
