"""Requests, deltas and outputs with every field drawn, and what it means that two are the same."""

from dataclasses import fields, is_dataclass

import numpy as np
from hypothesis import strategies as st

from tidegate.base import Int32Array
from tidegate.request import (
    Envelope,
    FinishReason,
    Request,
    RequestOutput,
    SamplingParams,
    Timing,
    TokenDelta,
    TokenLogprob,
)

INT32 = st.integers(0, 2**31 - 1)
TEXTS = st.text(st.characters(), max_size=6)  # halves of surrogate pairs included
NAMES = st.text(st.characters(), min_size=1, max_size=6)
SECONDS = st.floats(0, 1e9) | st.integers(0, 10**9)
LOGPROBS = st.floats(allow_nan=False)


def same(one: object, other: object) -> bool:
    """Whether both are equal in every field, in types and signs too: 1 is not 1.0 and 0.0 not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def arrays(min_size: int = 0) -> st.SearchStrategy[Int32Array]:
    return st.lists(INT32, min_size=min_size, max_size=6).map(lambda ids: np.array(ids, dtype=np.int32))


def sampling_params() -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        temperature=st.just(0) | st.floats(1e-6, 100),
        top_k=INT32,
        top_p=st.floats(0, 1, exclude_min=True),
        min_p=st.floats(0, 1),
        repetition_penalty=st.floats(1e-6, 100),
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        seed=st.none() | st.integers(0, 2**63 - 1),
        logprobs=st.none() | st.integers(0, 64),
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    prompt = draw(arrays(1))
    max_tokens = draw(st.integers(1, 2**31 - 1))
    return Request(
        request_id=draw(NAMES),
        prompt=prompt,
        sampling=draw(sampling_params()),
        max_tokens=max_tokens,
        min_tokens=draw(st.integers(0, max_tokens)),
        ignore_eos=draw(st.booleans()),
        stop=tuple(draw(st.lists(NAMES, max_size=3))),
        stop_token_ids=tuple(draw(st.lists(INT32, max_size=3))),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        arrival_s=draw(SECONDS),
        lora_id=draw(st.none() | NAMES),
        lora_version=draw(TEXTS | st.integers(-(2**63), 2**63 - 1)),
        salt=draw(st.none() | NAMES),
        access=draw(st.sampled_from(["read_write", "read", "none"])),
        prompt_logprobs=draw(st.booleans()),
        run_to_capacity=draw(st.booleans()),
        declared=tuple(draw(st.lists(st.integers(1, len(prompt)), max_size=3))),
        timeout_s=draw(st.none() | SECONDS),
        attention_dp_rank=draw(st.none() | st.integers(0, 2**16)),
        attention_dp_relax=draw(st.booleans()),
        conversation_id=draw(st.none() | NAMES),
    )


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    new = tuple(draw(st.lists(requests(), max_size=3)))
    return Envelope(
        requests=new,
        aborts=tuple(draw(st.lists(NAMES, max_size=3))),
        streamed=tuple(request.request_id for request in new if draw(st.booleans())),
        stops=draw(st.booleans()),
    )


def logprobs() -> st.SearchStrategy[TokenLogprob]:
    top = st.lists(st.tuples(INT32, LOGPROBS), max_size=2).map(tuple)
    return st.builds(TokenLogprob, INT32, LOGPROBS, top)


def timings() -> st.SearchStrategy[Timing]:
    return st.builds(
        Timing,
        arrival_s=SECONDS,
        admitted_s=st.none() | SECONDS,
        first_token_s=st.none() | SECONDS,
        finished_s=SECONDS,
    )


def outputs() -> st.SearchStrategy[RequestOutput]:
    return st.builds(
        RequestOutput,
        request_id=NAMES,
        prompt=arrays(),
        tokens=arrays(),
        finish_reason=st.sampled_from(FinishReason),
        timing=timings(),
        num_cached_tokens=INT32,
        num_suspensions=INT32,
        num_overtakes=INT32,
        text=TEXTS,
        error=st.none() | TEXTS,
        logprobs=st.none() | st.lists(logprobs(), max_size=2).map(tuple),
        prompt_logprobs=st.none() | st.lists(st.none() | logprobs(), max_size=2).map(tuple),
    )


def deltas() -> st.SearchStrategy[TokenDelta]:
    return st.builds(TokenDelta, request_id=NAMES, tokens=arrays(), text=TEXTS, output=st.none() | outputs())
