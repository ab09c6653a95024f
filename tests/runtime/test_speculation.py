"""Drafts change how many steps an output takes, never the output."""

from typing import Any

import numpy as np
import pytest

from tests.runtime.test_equal_outputs import LAYERS, SETTINGS, check, some_requests
from tidegate.base import ConfigError
from tidegate.engine import StepInput
from tidegate.request import FinishReason, SamplingParams
from tidegate.runtime import RuntimeConfig, build_manager, build_session
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.guessed_drafts import GuessedDrafts
from tidegate.testing.layouts import full, stacked, state, window
from tidegate.testing.serving import ServingRun, make_request

PENALISED = SamplingParams(temperature=0.0, presence_penalty=0.1)


def run_of(*, wrong: int | None = 0, drafts: int = 4, pages: int = 60, **settings: Any) -> ServingRun:
    values: dict[str, Any] = {"max_num_tokens": 64, "max_batch_size": 4, **settings}
    return ServingRun(
        stacked(full(), window(6)),
        pool_slots=(pages,),
        tokens_per_block=4,
        max_seq_len=64,
        wrong_drafts=wrong,
        num_speculative_tokens=drafts,
        **values,
    )


@pytest.mark.parametrize("pages", [200, 24], ids=["roomy", "tight"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("layers", ["full", "hybrid", "windows"])
def test_outputs_are_those_without_drafts(layers: str, settings: str, pages: int) -> None:
    run = check(
        LAYERS[layers],
        some_requests(7, 12),
        (pages,),
        headroom_blocks=0,
        num_speculative_tokens=3,
        wrong_drafts=4,
        **SETTINGS[settings],
    )

    statistics = run.session.statistics()
    assert 0 < statistics.accepted_tokens < statistics.draft_tokens
    assert statistics.tokens_per_decode > 1.1


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("wrong", [0, 2, 8, 16])
@pytest.mark.parametrize("drafts", [1, 2, 5, 8])
def test_any_number_of_drafts_and_any_number_of_errors(drafts: int, wrong: int, overlap: bool) -> None:
    run = check(
        LAYERS["hybrid"],
        some_requests(drafts, 10),
        (60,),
        num_speculative_tokens=drafts,
        wrong_drafts=wrong,
        overlap=overlap,
    )

    statistics = run.session.statistics()
    assert statistics.draft_tokens > 0
    assert (statistics.accepted_tokens == statistics.draft_tokens) == (wrong == 0)
    assert (statistics.accepted_tokens == 0) == (wrong == 16)


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("overlap", [False, True])
def test_in_a_pool_so_tight_that_requests_are_suspended(seed: int, overlap: bool) -> None:
    run = check(
        LAYERS["full"],
        some_requests(seed, 14),
        (13,),
        headroom_blocks=0,
        max_overtakes=0,
        num_speculative_tokens=4,
        wrong_drafts=3,
        overlap=overlap,
    )

    assert run.session.statistics().suspended > 0
    assert run.session.statistics().accepted_tokens > 0


def test_true_drafts_save_steps() -> None:
    request = make_request("r", 5, max_tokens=21)
    run = run_of(drafts=4)
    run.submit(request)
    run.run()

    statistics = run.session.statistics()
    assert statistics.draft_tokens == statistics.accepted_tokens == 21 - 1 - statistics.decode_tokens
    assert statistics.decode_tokens == 5  # 3 drafts, then 3, then 4 each: acceptance has to be earned
    assert statistics.tokens_per_decode == 20 / 5


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_length_is_reached_inside_a_draft(max_tokens: int) -> None:
    request = make_request("r", 5, max_tokens=max_tokens)
    run = run_of(drafts=6)
    run.submit(request)
    output = run.run()["r"]

    assert output.tokens.tolist() == run.expected(request)
    assert output.finish_reason is FinishReason.LENGTH
    statistics = run.session.statistics()
    assert statistics.decode_tokens + statistics.draft_tokens == max_tokens - 1  # nothing beyond is computed


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("place", range(1, 11))
def test_stop_token_inside_a_draft_is_the_last(place: int, overlap: bool) -> None:
    request = make_request("r", [3, 1, 4], max_tokens=14)
    expected = run_of().expected(request)
    stop = expected[place]
    run = run_of(drafts=5, eos_token_ids=(stop,), overlap=overlap)
    run.submit(request, stream=True)
    run.submit(make_request("deaf", [3, 1, 4], max_tokens=14, ignore_eos=True))
    outputs = run.run()

    cut = expected[: expected.index(stop) + 1]
    assert outputs["r"].tokens.tolist() == cut == run.deltas["r"]
    assert outputs["r"].finish_reason is FinishReason.STOP
    assert outputs["deaf"].tokens.tolist() == expected


@pytest.mark.parametrize("min_tokens", range(1, 12, 2))
def test_stop_tokens_do_not_count_before_the_minimum(min_tokens: int) -> None:
    request = make_request("r", 5, max_tokens=14, min_tokens=min_tokens)
    stops = tuple(run_of().expected(request)[1:9:2])
    outputs = []
    for wrong, drafts in ((None, 0), (0, 5), (3, 3)):
        run = run_of(wrong=wrong, drafts=drafts, eos_token_ids=stops)
        run.submit(request)
        outputs.append(run.run()["r"])

    assert len({tuple(output.tokens.tolist()) for output in outputs}) == 1
    assert len({output.finish_reason for output in outputs}) == 1
    assert outputs[0].num_tokens >= min_tokens


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps_before", range(8))
def test_cancelled_after_any_number_of_steps(steps_before: int, overlap: bool) -> None:
    run = run_of(wrong=4, max_num_tokens=16, overlap=overlap)
    victim, other = make_request("victim", 21, max_tokens=12), make_request("other", 6, max_tokens=16)
    run.submit(victim, stream=True)
    run.submit(other)
    for _ in range(steps_before):
        run.step()

    run.session.abort("victim")
    outputs = run.run()

    tokens = outputs["victim"].tokens.tolist()
    assert tokens == run.expected(victim)[: len(tokens)] == run.deltas["victim"]
    assert outputs["other"].tokens.tolist() == run.expected(other)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps_before", range(6))
def test_engine_failure_ends_the_requests_of_its_step_only(steps_before: int, overlap: bool) -> None:
    run = run_of(wrong=4, max_num_tokens=16, overlap=overlap)
    requests = [make_request(f"r{i}", 9 + i, max_tokens=9) for i in range(6)]
    for request in requests:
        run.submit(request)
    for _ in range(steps_before):
        run.step()

    run.engine.fail_next()
    outputs = run.run()

    failed = [output for output in outputs.values() if output.finish_reason is FinishReason.ERROR]
    assert 1 <= len(failed) < 6
    for request in requests:
        tokens = outputs[request.request_id].tokens.tolist()
        assert tokens == run.expected(request)[: None if outputs[request.request_id] not in failed else len(tokens)]


@pytest.mark.parametrize("overlap", [False, True])
def test_steps_keep_to_their_token_budget(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(max_num_tokens=9, drafts=6, overlap=overlap)
    sizes: list[int] = []
    forward = run.engine.forward

    def watched(step: StepInput) -> np.ndarray:
        sizes.append(step.token_ids.size)
        return forward(step)

    monkeypatch.setattr(run.engine, "forward", watched)
    requests = [make_request(f"r{i}", 5 + 3 * i, max_tokens=12) for i in range(5)]
    for request in requests:
        run.submit(request)
    outputs = run.run()

    assert max(sizes) <= 9
    assert all(outputs[r.request_id].tokens.tolist() == run.expected(r) for r in requests)


def test_a_prompt_gets_its_block_beside_drafting_sequences() -> None:
    run = run_of(max_num_tokens=12, drafts=8)
    run.submit(make_request("drafting", 5, max_tokens=50))
    run.step()
    run.submit(make_request("long", 20, max_tokens=1))
    run.run()

    assert list(run.outputs) == ["long", "drafting"]


def test_a_row_with_open_drafts_waits_for_them() -> None:
    run = run_of(overlap=True)
    run.submit(make_request("r", 5, max_tokens=20))
    seen = set()
    while run.session.has_work:
        run.step()
        lengths = run.manager.capacity - run.manager.history
        seen |= {(int(opened), int(length)) for opened, length in zip(run.manager.num_open, lengths, strict=True)}

    assert {length for opened, length in seen if opened == 1} >= {4, 5}
    assert not any(opened > 1 for opened, _ in seen)


def test_overlap_without_a_match_goes_on_overlapped() -> None:
    run = run_of(wrong=None, overlap=True)  # prompt look-up finds next to nothing in hashes
    request = make_request("r", [1, 2, 3], max_tokens=40)
    run.submit(request)
    num_open = []
    while run.session.has_work:
        run.step()
        num_open.append(int(run.manager.num_open.max()))

    assert run.outputs["r"].tokens.tolist() == run.expected(request)
    assert run.session.statistics().steps < 40 + 12
    assert len(num_open) < 40 + 12


@pytest.mark.parametrize("overlap", [False, True])
def test_streams_bring_every_token_once(overlap: bool) -> None:
    run = run_of(wrong=3, pages=24, headroom_blocks=0, overlap=overlap)
    requests = some_requests(3, 10)
    for request in requests:
        run.submit(request, stream=True)
    run.run()

    for request in requests:
        assert run.deltas[request.request_id] == run.expected(request)


@pytest.mark.parametrize("fields", [{"sampling": PENALISED}, {"prompt_logprobs": True}])
def test_requests_that_cannot_be_drafted_are_not(fields: dict[str, object]) -> None:
    pytest.importorskip("torch", reason="the engine extra is not installed")
    run = run_of()
    run.submit(make_request("r", 5, max_tokens=12, **fields))
    run.run()

    assert run.session.statistics().draft_tokens == 0


def test_poor_drafts_are_given_up() -> None:
    run = run_of(wrong=16, drafts=4)
    request = make_request("r", 5, max_tokens=55)
    run.submit(request)
    run.run()

    assert run.outputs["r"].tokens.tolist() == run.expected(request)
    assert run.session.statistics().draft_tokens <= 10


def test_same_plans_for_the_same_state() -> None:
    run = run_of(wrong=4)
    for request in some_requests(2, 6):
        run.submit(request)
    while run.session.has_work:
        scheduler = run.session._scheduler
        assert scheduler.plan().decisions() == scheduler.plan().decisions()
        run.step()


def test_models_with_state_layers_take_no_drafts() -> None:
    with pytest.raises(ConfigError, match=r"num_speculative_tokens=2 .* state layers.*max_rewind_len=0"):
        ServingRun(stacked(full(), state()), pool_slots=(20, 20), num_speculative_tokens=2)


def test_a_cache_that_cannot_take_drafts_back_is_refused() -> None:
    engine = FakeEngine(stacked(full()))
    manager = build_manager(engine, RuntimeConfig.from_settings({"pool_slots": (20,), "num_speculative_tokens": 2}))
    more = RuntimeConfig.from_settings({"pool_slots": (20,), "num_speculative_tokens": 3})

    with pytest.raises(ConfigError, match="num_speculative_tokens=3 must be at most max_rewind_len=2"):
        build_session(engine, manager, more)
    with pytest.raises(ConfigError, match="num_speculative_tokens=9 must be at most max_rewind_len=2"):
        build_session(engine, manager, more, drafts=GuessedDrafts(engine, 9))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_speculative_tokens", -1),
        ("num_speculative_tokens", 257),
        ("prompt_lookup_max", 0),
        ("prompt_lookup_min", 0),
        ("prompt_lookup_min", 6),
    ],
)
def test_illegal_settings_are_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        RuntimeConfig.from_settings({name: value})
