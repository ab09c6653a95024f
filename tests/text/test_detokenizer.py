"""Streams of tokens become the text of the whole, in pieces that are never taken back."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from tests.text.small_tokenizers import byte_level, pieces
from tidegate.text import Tokenizer
from tidegate.text.detokenizer import WindowDetokenizer

TEXTS = ("plain words", "naïve café", "日本語 text", "👩‍👩‍👧 and 🏳️‍🌈", "two words here", "")


def stream(tokenizer: Tokenizer, tokens: Sequence[int], **options: bool) -> list[str]:
    detokenizer = tokenizer.detokenizer(**options)
    return [*(detokenizer.push([t]) for t in tokens), detokenizer.flush()]


def ids(backend: PreTrainedTokenizerFast, *tokens: str) -> list[int]:
    found = backend.convert_tokens_to_ids(list(tokens))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_come_out_as_whole_characters(text: str) -> None:
    tokenizer = Tokenizer(byte_level())
    out = stream(tokenizer, tokenizer.encode(text))
    assert "".join(out) == text
    assert all("\ufffd" not in piece for piece in out)


def test_byte_fallback_holds_a_character_until_it_is_whole() -> None:
    tokenizer = Tokenizer(pieces())
    tokens = [tokenizer.encode("a")[0], *(2 + b for b in "é日👩".encode())]
    assert stream(tokenizer, tokens) == ["a", "", "é", "", "", "日", "", "", "", "👩", ""]


def test_leading_space_is_dropped_once_and_kept_between_words() -> None:
    backend = pieces()
    tokenizer = Tokenizer(backend)
    tokens = ids(backend, "▁the", "▁tide", "▁gate", "s", "▁the")
    assert "".join(stream(tokenizer, tokens)) == "the tide gates the" == tokenizer.decode(tokens)


def test_an_unfinished_character_appears_as_a_replacement_only_at_the_end() -> None:
    tokenizer = Tokenizer(byte_level())
    tokens = tokenizer.encode("日本")[:-1]
    assert stream(tokenizer, tokens) == ["", "", "日", "", "", "\ufffd"]


def test_bytes_that_can_never_be_a_character_do_not_hold_up_what_follows() -> None:
    for backend, byte_ids in ((byte_level(), None), (pieces(), 2)):
        tokenizer = Tokenizer(backend)
        alphabet = tokenizer.encode("x") if byte_ids is None else [byte_ids + ord("x")]
        broken = ids(backend, "ÿ") if byte_ids is None else [byte_ids + 0xFF]
        out = stream(tokenizer, broken * 20 + alphabet * 3)
        assert "".join(out).endswith("xxx")
        assert any(out[:8])


def test_special_tokens_are_skipped_or_shown() -> None:
    tokenizer = Tokenizer(byte_level())
    tokens = tokenizer.encode("<|im_start|>a<|im_end|>")
    assert len(tokens) == 3
    assert "".join(stream(tokenizer, tokens)) == "a"
    assert "".join(stream(tokenizer, tokens, skip_special=False)) == "<|im_start|>a<|im_end|>"


def test_random_valid_streams_equal_the_whole_decode() -> None:
    rng = random.Random(0)
    alphabet = "abs é日👩\n\t \u0301ßЖ"
    for backend in (byte_level(), pieces()):
        tokenizer = Tokenizer(backend)
        for _ in range(50):
            tokens = tokenizer.encode("".join(rng.choices(alphabet, k=rng.randrange(40))), special_tokens=False)
            assert "".join(stream(tokenizer, tokens)) == tokenizer.decode(tokens)


def test_window_holds_a_character_that_its_library_cannot_finish_yet() -> None:
    detokenizer = WindowDetokenizer(lambda tokens: bytes(tokens).decode("utf-8", errors="replace"), frozenset(), {})
    out = [detokenizer.push([byte]) for byte in "é👩!".encode()]
    assert out == ["", "é", "", "", "", "👩", "!"]
    assert detokenizer.push([0xC3]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_window_decodes_a_bounded_number_of_tokens_per_token() -> None:
    decoded = 0

    def decode(tokens: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return bytes(tokens).decode("utf-8", errors="replace")

    detokenizer = WindowDetokenizer(decode, frozenset(), {})
    stream_bytes = [*("é日👩a".encode() * 500), *([0xFF] * 1000)]
    for byte in stream_bytes:
        detokenizer.push([byte])
    assert decoded < 25 * len(stream_bytes)
