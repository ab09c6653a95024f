"""What travels between ranks arrives as it left, or is refused; nothing else ever happens to the receiver."""

import json
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.request.message_strategies import deltas, envelopes, same
from tidegate.base import ConfigError
from tidegate.request import (
    Envelope,
    FinishReason,
    Request,
    RequestOutput,
    SamplingParams,
    Timing,
    TokenDelta,
    TokenLogprob,
    decode_deltas,
    decode_envelope,
    encode_deltas,
    encode_envelope,
    token_array,
)

REQUEST = Request(
    request_id="r",
    prompt=token_array([1, 2, 3]),
    sampling=SamplingParams(temperature=0.1, top_k=5, seed=7, logprobs=2),
    stop=("a", "ü\ud800"),
    stop_token_ids=(4,),
    declared=(2,),
    priority=-3,
    arrival_s=0.1,
    timeout_s=3,
    lora_id="l",
    lora_version="2",
    salt="s",
    access="read",
    prompt_logprobs=True,
    run_to_capacity=True,
    attention_dp_rank=1,
    attention_dp_relax=False,
    conversation_id="c",
    max_tokens=5,
    min_tokens=2,
    ignore_eos=True,
)
SAMPLING = replace(
    REQUEST.sampling,
    top_p=0.3,
    min_p=0.1,
    repetition_penalty=1.1,
    presence_penalty=-0.1,
    frequency_penalty=0.7,
)
OUTPUT = RequestOutput(
    request_id="r",
    prompt=token_array([1, 2]),
    tokens=token_array([3]),
    finish_reason=FinishReason.STOP,
    timing=Timing(arrival_s=0.1, admitted_s=0.2, first_token_s=None, finished_s=0.3),
    num_cached_tokens=1,
    num_suspensions=2,
    num_overtakes=3,
    text="x",
    error="broken",
    logprobs=(TokenLogprob(3, -0.1, ((4, -float("inf")),)),),
    prompt_logprobs=(None, TokenLogprob(2, -0.2)),
)
SENT = Envelope((replace(REQUEST, sampling=SAMPLING),), ("gone",), ("r",), True)
DELTA = TokenDelta(request_id="r", tokens=token_array([3]), text="x", output=OUTPUT)
ENVELOPE = encode_envelope(SENT)
DELTAS = encode_deltas([DELTA])
DECODERS: list[Callable[[bytes], object]] = [decode_envelope, decode_deltas]


def frame(header: str | bytes, ids: bytes = b"") -> bytes:
    encoded = header.encode() if isinstance(header, str) else header
    return b"TGW1" + struct.pack("<I", len(encoded)) + encoded + ids


def edited(message: bytes, edit: Callable[[Any], object]) -> bytes:
    """The message with a header that ``edit`` changed in place."""
    (length,) = struct.unpack_from("<I", message, 4)
    header = json.loads(message[8 : 8 + length].decode("utf-8", "surrogatepass"))
    edit(header)
    return frame(json.dumps(header), message[8 + length :])


def column(name: str, kind: type[Any] = Request) -> int:
    return [field.name for field in fields(kind)].index(name)


def setting(name: str, value: object) -> bytes:
    """The envelope with one field of its request replaced."""
    return edited(ENVELOPE, lambda header: header["requests"][0].__setitem__(column(name), value))


def delta_setting(name: str, value: object) -> bytes:
    """The deltas with one field of the first replaced."""
    return edited(DELTAS, lambda header: header["deltas"][0].__setitem__(column(name, TokenDelta), value))


def output_setting(name: str, value: object) -> bytes:
    """The deltas with one field of the first one's output replaced."""
    at = column("output", TokenDelta)
    return edited(DELTAS, lambda header: header["deltas"][0][at].__setitem__(column(name, RequestOutput), value))


@given(envelopes())
def test_envelope_arrives_as_it_left(envelope: Envelope) -> None:
    assert same(decode_envelope(encode_envelope(envelope)), envelope)


@given(st.lists(deltas(), max_size=4))
def test_deltas_arrive_as_they_left(sent: list[TokenDelta]) -> None:
    assert same(decode_deltas(encode_deltas(sent)), sent)


def test_examples_arrive_as_they_left() -> None:
    assert same(decode_envelope(ENVELOPE), SENT)
    assert same(decode_deltas(DELTAS), [DELTA])


@pytest.mark.parametrize(
    "example", [SENT, SENT.requests[0], SAMPLING, DELTA, OUTPUT], ids=lambda each: type(each).__name__
)
def test_examples_leave_no_field_at_its_default(example: Any) -> None:
    """A field that the codec forgot would arrive at its default, and only an example with another value shows it."""
    for field in fields(example):
        default = field.default_factory() if callable(field.default_factory) else field.default
        assert not same(getattr(example, field.name), default), f"give {field.name} another value in the examples"


@pytest.mark.parametrize("name", [field.name for field in fields(Request)])
def test_object_is_refused_in_every_field_of_a_request(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"requests\[0\].*{name}"):
        decode_envelope(setting(name, {"a": 1}))


@pytest.mark.parametrize("name", [field.name for field in fields(SamplingParams)])
def test_object_is_refused_in_every_field_of_sampling(name: str) -> None:
    at = column(name, SamplingParams)

    def edit(header: Any) -> None:
        header["requests"][0][column("sampling")][at] = {"a": 1}

    with pytest.raises(ConfigError, match=rf"requests\[0\].*{name}"):
        decode_envelope(edited(ENVELOPE, edit))


@pytest.mark.parametrize("name", [field.name for field in fields(TokenDelta)])
def test_object_is_refused_in_every_field_of_a_delta(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"deltas\[0\]\.{name}="):
        decode_deltas(delta_setting(name, {"a": 1}))


@pytest.mark.parametrize("name", [field.name for field in fields(RequestOutput)])
def test_object_is_refused_in_every_field_of_an_output(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"deltas\[0\]\.output\.{name}="):
        decode_deltas(output_setting(name, {"a": 1}))


def test_difference_would_be_seen() -> None:
    assert not same(replace(REQUEST, timeout_s=3.0), REQUEST)
    assert not same(replace(REQUEST, prompt=token_array([1, 2, 4])), REQUEST)


def test_tokens_that_arrive_are_read_only_and_own_their_memory() -> None:
    (request,) = decode_envelope(ENVELOPE).requests

    assert not request.prompt.flags.writeable
    assert request.prompt.flags.owndata


def test_token_ids_travel_as_little_endian_int32() -> None:
    assert encode_envelope(Envelope((REQUEST,))).endswith(struct.pack("<3i", 1, 2, 3))


@pytest.mark.parametrize("decode", DECODERS)
@given(message=st.binary(max_size=64))
def test_random_bytes_are_refused(decode: Callable[[bytes], object], message: bytes) -> None:
    with pytest.raises(ConfigError):
        decode(message)


@pytest.mark.parametrize(("decode", "message"), [(decode_envelope, ENVELOPE), (decode_deltas, DELTAS)])
@given(data=st.data())
def test_mutated_message_is_decoded_or_refused(
    decode: Callable[[bytes], object], message: bytes, data: st.DataObject
) -> None:
    mutated = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        decode(bytes(mutated))
    except ConfigError:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(("decode", "message"), [(decode_envelope, ENVELOPE), (decode_deltas, DELTAS)])
@given(data=st.data(), value=JSON)
def test_any_value_in_any_place_is_decoded_or_refused(
    decode: Callable[[bytes], object], message: bytes, data: st.DataObject, value: object
) -> None:
    def replace_somewhere(header: Any) -> None:
        inside = header
        while True:
            key = data.draw(st.sampled_from(list(inside) if isinstance(inside, dict) else range(len(inside))))
            if not isinstance(inside[key], list | dict) or not inside[key] or data.draw(st.booleans()):
                inside[key] = value
                return
            inside = inside[key]

    try:
        decode(edited(message, replace_somewhere))
    except ConfigError:
        return


@pytest.mark.parametrize(("decode", "message"), [(decode_envelope, ENVELOPE), (decode_deltas, DELTAS)])
def test_every_truncation_is_refused(decode: Callable[[bytes], object], message: bytes) -> None:
    for length in range(len(message)):
        with pytest.raises(ConfigError):
            decode(message[:length])
    with pytest.raises(ConfigError, match="must be a multiple of 4"):
        decode(message + b"\0")
    with pytest.raises(ConfigError, match="its header declares"):
        decode(message + b"\0\0\0\0")


HOSTILE = [
    (b"", "0 bytes is too short"),
    (b"XXXX\0\0\0\0", r"begins with b'XXXX'"),
    (b"TGW1\xff\xff\xff\xff", "declares a header of 4294967295 bytes, but only 0 follow"),
    (frame("{}"), r"header has \[\], must have exactly \['kind'"),
    (frame("[]"), r"header is \[\]"),
    (frame("{"), "is not JSON"),
    (frame(b"\xff\xfe"), "is not JSON: .*utf-8"),
    (frame("[" * 100_000), "nested too deeply"),
    (frame('{"a":' * 100_000), "nested too deeply"),
    (frame("9" * 5000), "is not JSON"),
    (frame('{"kind":1,"kind":2}'), "names a member twice"),
    (frame("[NaN]"), "holds NaN"),
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(("message", "reason"), HOSTILE)
def test_hostile_frame_is_refused_with_the_reason(
    decode: Callable[[bytes], object], message: bytes, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        decode(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (DELTAS, r"header has .* must have exactly \['kind', 'fields'"),
        (edited(ENVELOPE, lambda header: header.update(kind="deltas")), "kind='deltas' must be 'envelope'"),
        (edited(ENVELOPE, lambda header: header.update(more=1)), "must have exactly"),
        (
            edited(ENVELOPE, lambda header: header["fields"].append("more")),
            r"^fields .*: unknown \['more'\], missing \[\]",
        ),
        (edited(ENVELOPE, lambda header: header["sampling"].pop()), r"^sampling must be .* missing \['logprobs'\]"),
        (edited(ENVELOPE, lambda header: header["requests"][0].append(1)), r"requests\[0\]=.* must be a list of \d+"),
        (edited(ENVELOPE, lambda header: header.update(requests={})), "requests={} must be a list"),
        (edited(ENVELOPE, lambda header: header.update(aborts=["a", 5])), r"aborts\[1\]=5 must be"),
        (edited(ENVELOPE, lambda header: header.update(stops=1)), "stops=1 must be True or False"),
        (edited(ENVELOPE, lambda header: header.update(streamed=True)), "streamed=True must be a list"),
        (edited(ENVELOPE, lambda header: header.update(streamed=["r", "?"])), r"streamed\[1\]='\?' must be the id of"),
        (setting("prompt", 10**18), r"requests\[0\].prompt=1000000000000000000 must be a number of the 3"),
        (setting("prompt", 2), "holds 3 token ids, but its header declares 2"),
        (setting("prompt", 0), r"requests\[0\]: prompt=\[\] must hold at least one token"),
        (setting("prompt", True), r"requests\[0\].prompt=True must be"),
        (setting("max_tokens", 2.5), r"requests\[0\]: max_tokens=2.5 must be an integer"),
        (setting("arrival_s", 10**400), r"requests\[0\]: arrival_s="),
        (setting("stop", "ab"), r"requests\[0\].stop='ab' must be a list"),
        (setting("sampling", [1]), r"requests\[0\].sampling=\[1\] must be a list of 9"),
        (ENVELOPE[:-4] + struct.pack("<i", -1), r"requests\[0\].prompt\[2\]=-1 must be at least 0"),
    ],
)
def test_hostile_envelope_is_refused_with_the_reason(message: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        decode_envelope(message)


OUTPUT_EDITS = [
    ("prompt", 10**9, "output.prompt=1000000000 must be a number of the"),
    ("finish_reason", "tired", r"finish_reason='tired' must be one of \['stop'"),
    ("finish_reason", ["stop"], "finish_reason"),
    ("timing", [0.0, None, None, None], "finished_s=None must be a number"),
    ("timing", [0.0, float("inf"), None, 1.0], "admitted_s=inf must be a number"),
    ("num_cached_tokens", -1, "num_cached_tokens=-1 must be an integer"),
    ("num_overtakes", True, "num_overtakes=True must be an integer"),
    ("text", None, "output.text=None must be a string"),
    ("error", 5, "output.error=5 must be a string"),
    ("logprobs", [None], r"logprobs\[0\]=None must be a list of 3"),
    ("logprobs", [[1, 2, []]], r"logprobs\[0\].logprob=2 must be a float"),
    ("prompt_logprobs", [[1, 2.0, [[1]]]], r"prompt_logprobs\[0\].top\[0\]=\[1\] must be a list of 2"),
]


@pytest.mark.parametrize(("name", "value", "reason"), OUTPUT_EDITS)
def test_hostile_output_is_refused_with_the_reason(name: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        decode_deltas(output_setting(name, value))


@pytest.mark.parametrize("message", [None, "text", bytearray(ENVELOPE), 5])
def test_what_is_not_bytes_is_refused(message: object) -> None:
    with pytest.raises(ConfigError, match="message of type"):
        decode_envelope(message)  # type: ignore[arg-type]  # the point of the test


NAN = float("nan")
UNSENDABLE = [
    TokenDelta(request_id="", tokens=token_array([1])),
    TokenDelta(request_id="r", tokens=np.array([-1], dtype=np.int32)),
    TokenDelta(request_id="r", tokens=np.array([1], dtype=np.int64)),
    TokenDelta(request_id="r", tokens=token_array([1]), text=b"x"),  # type: ignore[arg-type]  # the point of the test
    TokenDelta(request_id="r", tokens=token_array([1]), output=replace(OUTPUT, logprobs=(TokenLogprob(1, NAN),))),
    TokenDelta(request_id="r", tokens=token_array([1]), output=replace(OUTPUT, num_cached_tokens=np.int64(3))),  # type: ignore[arg-type]  # the point of the test
]


@pytest.mark.parametrize("delta", UNSENDABLE)
def test_what_nobody_could_decode_is_not_sent(delta: TokenDelta) -> None:
    with pytest.raises(ConfigError):
        encode_deltas([delta])


def test_envelope_that_nobody_could_decode_is_not_sent() -> None:
    with pytest.raises(ConfigError, match=r"prompt\[0\]=-5"):
        encode_envelope(Envelope((Request(request_id="r", prompt=np.array([-5], dtype=np.int32)),)))
    with pytest.raises(ConfigError, match="aborts=5"):
        encode_envelope(Envelope((), (5,)))  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ConfigError, match=r"streamed\[0\]='gone' must be the id of"):
        encode_envelope(Envelope((), ("gone",), ("gone",)))
    with pytest.raises(ConfigError, match="stops=1"):
        encode_envelope(Envelope(stops=1))  # type: ignore[arg-type]  # the point of the test
