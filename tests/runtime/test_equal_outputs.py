"""Whatever is chunked, reused, suspended or overlapped, outputs are those of a run without any cache."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidegate.base import LayerSpec
from tidegate.request import Request
from tidegate.testing.layouts import full, stacked, state, window
from tidegate.testing.serving import ServingRun, make_request

LAYERS = {
    "full": stacked(full()),
    "hybrid": stacked(full(), window(6)),
    "windows": stacked(window(5), window(9, sink_tokens=2)),
    "state": stacked(full(), state()),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlap": {"overlap": True},
    "chunks": {"max_num_tokens": 8},
    "chunks-overlap": {"max_num_tokens": 8, "overlap": True},
    "partials": {"max_num_tokens": 16, "max_chunk_tokens": 8, "max_partial_prefills": 3},
    "no-scratch": {"swa_scratch_reuse": False},
    "no-caching": {"enable_prefix_caching": False},
    "whole-blocks": {"enable_partial_reuse": False},
    "priority": {"policy": "priority", "max_batch_size": 3},
    "no-sharing": {"share_prefixes": False},
}


def some_requests(seed: int, count: int) -> list[Request]:
    rng = random.Random(seed)
    heads = [[rng.randrange(31) for _ in range(24)] for _ in range(2)]
    return [
        make_request(
            f"r{i}",
            rng.choice(heads)[: rng.randrange(24)] + [rng.randrange(31) for _ in range(rng.randrange(1, 8))],
            max_tokens=rng.randrange(1, 14),
            priority=rng.randrange(3),
        )
        for i in range(count)
    ]


def check(
    layers: Sequence[LayerSpec], requests: list[Request], pages: tuple[int, ...], **settings: object
) -> ServingRun:
    values: dict[str, Any] = {
        "tokens_per_block": 4,
        "max_seq_len": 64,
        "max_num_tokens": 64,
        "max_batch_size": 8,
        **settings,
    }
    run = ServingRun(layers, pool_slots=pages, **values)
    rng = random.Random(len(requests))
    for request in requests:
        run.submit(request)
        for _ in range(rng.randrange(3)):
            run.step()
    outputs = run.run()
    for request in requests:
        output = outputs[request.request_id]
        assert output.error is None
        assert output.tokens.tolist() == run.expected(request), request.request_id
    return run


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("layers", LAYERS)
def test_with_room_to_spare(layers: str, settings: str) -> None:
    pages = (200,) if layers != "state" else (200, 64)
    check(LAYERS[layers], some_requests(7, 12), pages, **SETTINGS[settings])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_in_a_pool_so_tight_that_requests_are_suspended(seed: int, settings: str) -> None:
    run = check(LAYERS["full"], some_requests(seed, 14), (13,), headroom_blocks=0, **SETTINGS[settings])

    assert run.session.statistics().suspended > 0


@pytest.mark.parametrize("settings", ["plain", "overlap", "chunks", "chunks-overlap"])
@pytest.mark.parametrize("seed", range(3))
def test_hybrid_in_a_tight_pool(seed: int, settings: str) -> None:
    check(LAYERS["hybrid"], some_requests(seed, 14), (24,), headroom_blocks=0, **SETTINGS[settings])


def test_tokens_stream_in_order_and_once() -> None:
    run = ServingRun(
        LAYERS["full"], pool_slots=(13,), tokens_per_block=4, max_seq_len=64, max_num_tokens=64, overlap=True
    )
    requests = some_requests(3, 10)
    for request in requests:
        run.submit(request, stream=True)
    run.run()

    for request in requests:
        assert run.deltas[request.request_id] == run.expected(request)


def test_same_seed_same_plans() -> None:
    limits: dict[str, Any] = {"max_num_tokens": 16, "max_batch_size": 8}

    def plans() -> list[object]:
        run = ServingRun(LAYERS["hybrid"], pool_slots=(24,), tokens_per_block=4, max_seq_len=64, **limits)
        seen: list[object] = []
        for request in some_requests(5, 12):
            run.submit(request)
        while run.session.has_work:
            seen.append((run.session.statistics(), [d.request_id for d in run.step()]))
        return seen

    first = plans()
    assert all(plans() == first for _ in range(3))


def test_stop_token_ends_a_request_and_is_its_last_token() -> None:
    request = make_request("r", [3, 1, 4], max_tokens=12)
    probe = ServingRun(LAYERS["full"], pool_slots=(20,), tokens_per_block=4, max_seq_len=64, max_num_tokens=64)
    expected = probe.expected(request)
    stop = expected[4]
    cut = expected[: expected.index(stop) + 1]

    for overlap in (False, True):
        run = ServingRun(
            LAYERS["full"],
            eos_token_ids=(stop,),
            pool_slots=(20,),
            tokens_per_block=4,
            max_seq_len=64,
            max_num_tokens=64,
            overlap=overlap,
        )
        run.submit(request)
        run.submit(make_request("deaf", [3, 1, 4], max_tokens=12, ignore_eos=True))
        outputs = run.run()
        assert outputs["r"].tokens.tolist() == cut
        assert outputs["r"].finish_reason == "stop"
        assert outputs["deaf"].tokens.tolist() == expected
        assert outputs["deaf"].finish_reason == "length"


def test_overlap_computes_nothing_beyond_a_known_length() -> None:
    run = ServingRun(
        LAYERS["full"],
        pool_slots=(30,),
        tokens_per_block=4,
        max_seq_len=16,
        max_num_tokens=16,
        max_batch_size=4,
        overlap=True,
    )
    requests = [make_request("a", 4, max_tokens=12), make_request("b", 10, max_tokens=6)]  # both fill the model
    for request in requests:
        run.submit(request)
    outputs = run.run()

    assert [outputs[r.request_id].tokens.tolist() for r in requests] == [run.expected(r) for r in requests]
    assert run.session.statistics().decode_tokens == 11 + 5


@pytest.mark.parametrize("eos", range(0, 31, 5))
def test_sequences_that_end_by_surprise_leave_a_step_already_planned(eos: int) -> None:
    run = ServingRun(
        stacked(full(), window(6)),
        eos_token_ids=(eos, (eos + 11) % 31, (eos + 17) % 31),
        pool_slots=(60,),
        tokens_per_block=4,
        max_seq_len=64,
        max_num_tokens=24,
        max_batch_size=4,
        enable_prefix_caching=False,
        overlap=True,
    )
    requests = some_requests(eos, 10)
    for request in requests:
        run.submit(request)
    outputs = run.run()

    for request in requests:
        expected = run.expected(request)
        ends = [i for i, token in enumerate(expected) if token in (eos, (eos + 11) % 31, (eos + 17) % 31)]
        assert outputs[request.request_id].tokens.tolist() == expected[: ends[0] + 1 if ends else None]
