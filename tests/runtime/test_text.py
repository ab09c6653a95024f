"""Stop strings and text deltas, over a tokenizer whose tokens are letters."""

from collections.abc import Iterable, Sequence
from typing import cast

import pytest

pytest.importorskip("transformers", reason="the engine extra is not installed")

from tidegate.base import VirtualClock
from tidegate.request import FinishReason, Request, TokenDelta
from tidegate.runtime import RuntimeConfig, Session, build_manager, build_session
from tidegate.runtime.text_streams import TextStream, TextStreams
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import make_request
from tidegate.text import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterDetokenizer:
    """Holds one letter back, so that the end of a stream is tested too."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, tokens: Iterable[int]) -> str:
        text = self._held + "".join(LETTERS[token] for token in tokens)
        self._held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


class LetterTokenizer:
    end_tokens: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def detokenizer(self) -> LetterDetokenizer:
        return LetterDetokenizer()


def letters(tokens: Sequence[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def session_of(*, overlap: bool = False) -> tuple[Session, FakeEngine]:
    engine = FakeEngine(stacked(full()), vocab_size=26)
    config = RuntimeConfig.from_settings(
        {
            "pool_slots": (32,),
            "tokens_per_block": 4,
            "max_seq_len": 64,
            "max_num_tokens": 16,
            "max_batch_size": 4,
            "overlap": overlap,
        }
    )
    text = TextStreams(cast(Tokenizer, LetterTokenizer()))
    manager = build_manager(engine, config)
    return build_session(engine, manager, config, text=text, clock=VirtualClock()), engine


def run(session: Session, *requests: Request, stream: bool = True) -> dict[str, list[TokenDelta]]:
    for request in requests:
        session.submit(request, stream=stream)
    deltas: dict[str, list[TokenDelta]] = {request.request_id: [] for request in requests}
    while session.has_work:
        for delta in session.step():
            deltas[delta.request_id].append(delta)
    session.close()
    return deltas


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_ends_the_request_where_it_ends(overlap: bool, stream: bool) -> None:
    session, engine = session_of(overlap=overlap)
    whole = letters(engine.continuation([1, 2, 3], 20))
    stop = whole[6:9]
    request = make_request("r", [1, 2, 3], max_tokens=20, stop=(stop,))

    output = run(session, request, stream=stream)["r"][-1].output

    assert output is not None
    assert output.finish_reason is FinishReason.STOP
    assert output.text == whole[: whole.index(stop)]
    assert letters(output.tokens.tolist()).startswith(whole[: whole.index(stop) + len(stop)])


def test_stop_string_completed_by_the_last_allowed_token_counts() -> None:
    session, engine = session_of()
    whole = letters(engine.continuation([1, 2, 3], 6))
    request = make_request("r", [1, 2, 3], max_tokens=6, stop=(whole[4:],))

    output = run(session, request)["r"][-1].output

    assert output is not None
    assert output.finish_reason is FinishReason.STOP
    assert output.text == whole[: whole.index(whole[4:])]


@pytest.mark.parametrize("overlap", [False, True])
def test_deltas_add_up_to_the_output(overlap: bool) -> None:
    session, engine = session_of(overlap=overlap)
    requests = [
        make_request("plain", [1, 2], max_tokens=9),
        make_request("stopped", [3, 4], max_tokens=20, stop=(letters(engine.continuation([3, 4], 9))[5:7],)),
    ]

    for of_request in run(session, *requests).values():
        output = of_request[-1].output
        assert output is not None
        assert "".join(delta.text for delta in of_request) == output.text
        assert [t for delta in of_request for t in delta.tokens.tolist()] == output.tokens.tolist()


def test_beginning_of_a_stop_string_is_shown_only_when_it_is_none() -> None:
    session, engine = session_of()
    whole = letters(engine.continuation([1, 2, 3], 8))
    unfinished = whole[-2:] + "z"

    deltas = run(session, make_request("r", [1, 2, 3], max_tokens=8, stop=(unfinished,)))["r"]

    assert "".join(delta.text for delta in deltas) == whole
    assert deltas[-1].output is not None
    assert deltas[-1].output.finish_reason is FinishReason.LENGTH


def test_stop_string_before_the_minimum_does_not_count() -> None:
    session, engine = session_of()
    whole = letters(engine.continuation([1, 2, 3], 10))
    request = make_request("r", [1, 2, 3], max_tokens=10, min_tokens=10, stop=(whole[0],))

    output = run(session, request)["r"][-1].output

    assert output is not None
    assert output.num_tokens == 10


def test_stream_takes_no_token_beyond_the_stop() -> None:
    request = make_request("r", [1], stop=("bc",))
    stream = TextStream(LetterDetokenizer(), request)

    piece = stream.push([0, 1, 2, 3, 4])

    assert (piece.text, piece.num_tokens, piece.is_stopped) == ("a", 4, True)
