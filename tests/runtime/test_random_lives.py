"""Random loads, settings, aborts and engine failures: every request ends, with the right tokens and no page lost."""

import random
from typing import Any

import pytest

from tidegate.base import LayerSpec, RequestTooLong
from tidegate.request import FinishReason, Request
from tidegate.testing.layouts import full, stacked, state, window
from tidegate.testing.serving import ServingRun, make_request

LAYERS: dict[str, tuple[tuple[LayerSpec, ...], int]] = {
    "full": (stacked(full()), 1),
    "hybrid": (stacked(full(), window(6)), 1),
    "two block sizes": (stacked(full(block_tokens=8), window(5)), 2),
    "state": (stacked(full(), state()), 2),
}


def random_run(rng: random.Random, layers: str, **drafting: Any) -> ServingRun:
    specs, num_pool_groups = LAYERS[layers]
    pages = rng.choice([12, 16, 24, 60])
    settings: dict[str, Any] = {
        "max_num_tokens": rng.choice([8, 12, 16, 32]),
        "max_chunk_tokens": rng.choice([None, None, 8]),
        "max_batch_size": rng.choice([1, 2, 3, 6]),
        "max_partial_prefills": rng.choice([1, 1, 2, 4]),
        "policy": rng.choice(["fcfs", "priority", "shortest_uncached_first"]),
        "capacity_policy": rng.choice(["max_utilization", "max_utilization", "guaranteed_no_evict"]),
        "max_overtakes": rng.choice([0, 1, 16]),
        "batch_wait_timeout_iters": rng.choice([0, 3]),
        "batch_wait_max_tokens_ratio": 0.5,
        "batch_wait_timeout_ms": rng.choice([0, 30]),
        "headroom_blocks": rng.choice([0, 1, 2]),
        "share_prefixes": rng.random() < 0.7,
        "enable_prefix_caching": rng.random() < 0.7,
        "swa_scratch_reuse": rng.random() < 0.5,
        "overlap": rng.random() < 0.5,
    }
    pool_slots = (pages, max(8, pages // 2))[:num_pool_groups]
    return ServingRun(specs, pool_slots=pool_slots, tokens_per_block=4, max_seq_len=48, **settings, **drafting)


def live(rng: random.Random, run: ServingRun) -> list[Request]:
    """Submit requests at random times, and abort some, and let the engine fail now and then."""
    heads = [[rng.randrange(31) for _ in range(30)] for _ in range(2)]
    requests: list[Request] = []
    for number in range(20):
        tail = [rng.randrange(31) for _ in range(rng.randrange(1, 6))]
        request = make_request(
            f"r{number}",
            rng.choice(heads)[: rng.randrange(30)] + tail,
            max_tokens=rng.randrange(1, 14),
            priority=rng.randrange(3),
            run_to_capacity=rng.random() < 0.3,
            timeout_s=rng.choice([None, None, None, 0.3]),
        )
        try:
            run.submit(request, stream=rng.random() < 0.5)
        except RequestTooLong:
            continue
        requests.append(request)
        for _ in range(rng.randrange(4)):
            run.step()
        if rng.random() < 0.15:
            run.session.abort(rng.choice(requests).request_id)
        if rng.random() < 0.05:
            run.engine.fail_next()
    return requests


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("seed", range(12))
def test_every_request_ends_as_it_should(seed: int, layers: str) -> None:
    rng = random.Random(seed)
    run = random_run(rng, layers)
    check(run, live(rng, run))


@pytest.mark.parametrize("layers", [layers for layers in LAYERS if layers != "state"])
@pytest.mark.parametrize("seed", range(12))
def test_every_request_ends_as_it_should_with_drafts(seed: int, layers: str) -> None:
    rng = random.Random(seed)
    run = random_run(rng, layers, num_speculative_tokens=rng.randrange(1, 7), wrong_drafts=rng.choice([0, 1, 4, 9]))
    check(run, live(rng, run))


def check(run: ServingRun, requests: list[Request]) -> None:
    """Run to the end and hold every output against what it should be."""
    outputs = run.run()

    for request in requests:
        output = outputs[request.request_id]
        tokens = output.tokens.tolist()
        assert tokens == run.expected(request)[: len(tokens)]
        if output.finish_reason is FinishReason.LENGTH:
            assert len(tokens) == request.max_tokens
        if output.finish_reason is FinishReason.CAPACITY:
            assert request.run_to_capacity
        if output.finish_reason is FinishReason.ERROR:
            assert "failed as told" in (output.error or "")
