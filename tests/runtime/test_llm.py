"""The offline face on the fake engine: prompts as token ids."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tidegate.base import ConfigError, OutOfPages, RequestTooLong, VirtualClock
from tidegate.engine import StepInput
from tidegate.request import FinishReason, SamplingParams, TokenDelta
from tidegate.runtime import LLM
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.layouts import full, stacked

GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(stacked(full()), vocab_size=31)


@pytest.fixture
def llm(engine: FakeEngine) -> Iterator[LLM]:
    settings: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "block_size": 4}
    with LLM(engine=engine, clock=VirtualClock(), pool_slots=(16,), max_model_len=48, **settings) as llm:
        yield llm
        llm.manager.audit()


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM, engine: FakeEngine) -> None:
    prompts = [[1, 2, 3], list(range(20)), [4] * 9, [7], [8, 8], [9]]

    outputs = llm.generate(prompts, GREEDY, max_tokens=5)

    assert [output.prompt.tolist() for output in outputs] == prompts
    assert [output.tokens.tolist() for output in outputs] == [engine.continuation(p, 5) for p in prompts]
    assert all(output.finish_reason is FinishReason.LENGTH for output in outputs)


@pytest.mark.parametrize("prompt", [[3, 1, 4], np.array([3, 1, 4]), (3, 1, 4)])
def test_one_prompt_needs_no_list(llm: LLM, engine: FakeEngine, prompt: list[int]) -> None:
    (output,) = llm.generate(prompt, GREEDY, max_tokens=3)

    assert output.tokens.tolist() == engine.continuation([3, 1, 4], 3)


def test_stream_brings_every_token_once_and_the_output_last(llm: LLM, engine: FakeEngine) -> None:
    deltas: dict[str, list[TokenDelta]] = {}
    for delta in llm.generate([[1, 2], [3, 4, 5]], GREEDY, max_tokens=6, stream=True):
        deltas.setdefault(delta.request_id, []).append(delta)

    assert len(deltas) == 2
    for of_request, prompt in zip(deltas.values(), ([1, 2], [3, 4, 5]), strict=True):
        tokens = [token for delta in of_request for token in delta.tokens.tolist()]
        assert tokens == engine.continuation(prompt, 6)
        assert [delta.output is not None for delta in of_request] == [False] * (len(of_request) - 1) + [True]


def test_leaving_a_stream_aborts_what_is_left(llm: LLM) -> None:
    stream = llm.generate([[1, 2], [3]], GREEDY, max_tokens=30, stream=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # the iterator is a generator

    llm.generate([5], GREEDY, max_tokens=1)
    assert llm.statistics().running == llm.statistics().waiting == 0
    assert llm.manager.quote().supply == (16,)


def test_a_stream_that_is_dropped_unread_is_aborted_too(llm: LLM) -> None:
    stream = llm.generate([[1, 2], [3]], GREEDY, max_tokens=30, stream=True)
    del stream

    llm.generate([5], GREEDY, max_tokens=1)
    assert llm.statistics().running == llm.statistics().waiting == 0
    assert llm.manager.quote().supply == (16,)


def test_a_stream_dropped_in_the_middle_of_a_step_waits_for_its_end(llm: LLM, engine: FakeEngine) -> None:
    streams = [llm.generate([1, 2], GREEDY, max_tokens=30, stream=True)]
    next(streams[0])
    forward = engine.forward

    def drop_and_compute(step: StepInput) -> object:
        streams.clear()
        return forward(step)

    engine.forward = drop_and_compute  # type: ignore[assignment, method-assign]  # as a garbage collector might
    (output,) = llm.generate([3, 4], GREEDY, max_tokens=4)

    assert output.tokens.tolist() == engine.continuation([3, 4], 4)
    assert llm.statistics().running == 0
    llm.manager.audit()


def test_generating_while_a_stream_is_read(llm: LLM, engine: FakeEngine) -> None:
    tokens: list[int] = []
    for delta in llm.generate([1, 2], GREEDY, max_tokens=6, stream=True):
        tokens.extend(delta.tokens.tolist())
        (inner,) = llm.generate([3, 4], GREEDY, max_tokens=2)
        assert inner.tokens.tolist() == engine.continuation([3, 4], 2)

    assert tokens == engine.continuation([1, 2], 6)


@pytest.mark.parametrize("ids", [(-1,), (31,), (True,), (1.5,), "ab", 5, [2]])
def test_end_tokens_are_tokens(ids: Any, engine: FakeEngine) -> None:
    with pytest.raises(ConfigError, match="eos_token_ids"):
        LLM(engine=engine, eos_token_ids=ids, pool_slots=(16,))


@pytest.mark.parametrize("params", [{"temperature": 0}, "greedy", [GREEDY], SamplingParams])
def test_sampling_of_another_kind_is_refused(params: Any, llm: LLM) -> None:
    with pytest.raises(ConfigError, match="sampling="):
        llm.generate([1], params)


@pytest.mark.parametrize("version", [None, [], {}, 1.5, True])
def test_adapter_versions_of_another_kind_are_refused(version: Any, llm: LLM) -> None:
    with pytest.raises(ConfigError, match="lora_version="):
        llm.generate([1], GREEDY, lora_version=version)


def test_only_requests_are_submitted_and_only_names_aborted(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="request='x'"):
        llm.session.submit("x")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ConfigError, match="request_id=None"):
        llm.abort(None)  # type: ignore[arg-type]  # on purpose


def test_two_streams_may_be_read_in_turns(llm: LLM, engine: FakeEngine) -> None:
    first = llm.generate([1, 2], GREEDY, max_tokens=5, stream=True)
    second = llm.generate([3, 4], GREEDY, max_tokens=5, stream=True)
    tokens: tuple[list[int], list[int]] = ([], [])
    for one, other in zip(first, second, strict=True):
        tokens[0].extend(one.tokens.tolist())
        tokens[1].extend(other.tokens.tolist())

    assert tokens[0] == engine.continuation([1, 2], 5)
    assert tokens[1] == engine.continuation([3, 4], 5)


def test_abort_in_mid_stream_ends_it_with_what_there_is(llm: LLM, engine: FakeEngine) -> None:
    seen: list[TokenDelta] = []
    for delta in llm.generate([1, 2], GREEDY, max_tokens=30, stream=True):
        seen.append(delta)
        if len(seen) == 3:
            assert llm.abort(delta.request_id)

    assert seen[-1].output is not None
    assert seen[-1].output.finish_reason is FinishReason.ABORTED
    assert seen[-1].output.tokens.tolist() == engine.continuation([1, 2], 3)
    assert not llm.abort("nobody")


def test_second_ask_reuses_the_first(llm: LLM) -> None:
    prompt = list(range(12))
    first, second = llm.generate(prompt, GREEDY, max_tokens=2)[0], llm.generate(prompt, GREEDY, max_tokens=2)[0]
    other = llm.generate(prompt, GREEDY, max_tokens=2, salt="tenant")[0]

    assert (first.num_cached_tokens, second.num_cached_tokens, other.num_cached_tokens) == (0, 11, 0)
    assert first.tokens.tolist() == second.tokens.tolist() == other.tokens.tolist()


def test_times_are_those_of_the_clock(engine: FakeEngine) -> None:
    clock = VirtualClock(5.0)
    settings: dict[str, Any] = {"max_num_tokens": 8, "max_batch_size": 2, "tokens_per_block": 4}
    with LLM(engine=engine, clock=clock, pool_slots=(16,), max_seq_len=48, **settings) as llm:
        for delta in llm.generate([1] * 10, GREEDY, max_tokens=4, stream=True):
            output = delta.output
            clock.advance(1.0)

    assert output is not None
    assert output.timing.arrival_s == 5.0
    assert output.timing.ttft_s == 0.0
    assert output.tpot_s == 1.0


@pytest.mark.parametrize(
    ("prompts", "where"),
    [
        ([], "prompts"),
        ({}, "prompts"),
        (None, "prompts"),
        (7, "prompts"),
        ([[1], []], r"prompts\[1\]"),
        ([[1], [31]], r"prompt\[0\]=31"),
        ([[1], [-1]], r"prompts\[1\]\[0\]=-1"),
        ([[1], [1.5]], r"prompts\[1\]"),
        ([[1], [[2]]], r"prompts\[1\]"),
        ([[1], "text"], r"prompts\[1\]"),
        ([[1], None], r"prompts\[1\]"),
        ([2**40], r"prompts\[0\]\[0\]"),
    ],
)
def test_hostile_prompt_is_refused_by_name_before_any_is_run(llm: LLM, prompts: list[list[int]], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        llm.generate(prompts, GREEDY, max_tokens=2)

    assert llm.statistics().admitted == 0
    assert llm.statistics().waiting == 0


def test_prompt_too_long_is_refused_and_takes_the_others_with_it(llm: LLM) -> None:
    with pytest.raises(RequestTooLong, match="max_seq_len=48"):
        llm.generate([[1], [2] * 47], GREEDY, max_tokens=2)

    assert llm.statistics().waiting == 0
    assert llm.generate([1], GREEDY, max_tokens=1)[0].num_tokens == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 0), ("no_such_field", 1), ("request_id", "mine"), ("stop", "x"), ("min_tokens", 99)],
)
def test_illegal_request_field_is_refused_by_name(llm: LLM, field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        llm.generate([1], GREEDY, **{field: value})  # type: ignore[call-overload]  # the point of the test

    assert llm.statistics().waiting == 0


def test_pages_held_by_somebody_else_are_reported_not_waited_for(llm: LLM) -> None:
    held = llm.manager.create([30] * 40)
    assert held.resize(40)
    assert llm.manager.quote().supply == (6,)
    other = llm.manager.create([29] * 20)
    assert other.resize(20)

    with pytest.raises(OutOfPages, match="sequences outside this scheduler hold"):
        llm.generate([1] * 20, GREEDY, max_tokens=2)

    held.close()
    other.close()
    assert llm.generate([1] * 20, GREEDY, max_tokens=2)[0].num_tokens == 2


def test_engine_with_a_model_name_is_refused(engine: FakeEngine) -> None:
    with pytest.raises(ConfigError, match="model='m'"):
        LLM("m", engine=engine)
    with pytest.raises(ConfigError, match="no_such=1"):
        LLM(engine=engine, no_such=1)


def test_chat_needs_text(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="messages"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_waiting_for_a_batch_lets_the_clock_go_on() -> None:
    clock = VirtualClock(5.0)
    engine = FakeEngine(stacked(full()), vocab_size=31)
    with LLM(engine=engine, clock=clock, pool_slots=(16,), max_model_len=48, batch_wait_timeout_ms=50) as llm:
        outputs = llm.generate([[1, 2, 3], [4, 5]], max_tokens=2)

    assert [output.timing.admitted_s for output in outputs] == [pytest.approx(5.05)] * 2
