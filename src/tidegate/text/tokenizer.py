"""A model's tokenizer and chat template, from its directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tidegate.base import ConfigError, check_integer, shown
from tidegate.text.byte_tokens import byte_table, fallback_bytes
from tidegate.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer

_ROLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_CHARACTERS = 1 << 24
"""Of a text, more than any model's context: the tokenizer would take hundreds of times its memory."""
ChatMessage = Mapping[str, object]
"""``{"role": ..., "content": ...}`` and whatever else the model's template reads."""


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_tokens: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        own_end = tokenizer.eos_token_id
        self._end_tokens = end_tokens | (frozenset() if own_end is None else frozenset({int(own_end)}))
        self._bytes = byte_table(tokenizer)
        self._fallback = fallback_bytes(tokenizer) if self._bytes is None else {}
        marked = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special = frozenset(marked | set(tokenizer.all_special_ids))

    @classmethod
    def from_directory(cls, path: str | Path) -> Tokenizer:
        """Load from a model directory. Raises ``ConfigError`` when it holds no usable tokenizer."""
        path = Path(path)
        if not path.is_dir():
            raise ConfigError(f"tokenizer {path}: there is no such directory; give a directory with tokenizer.json")
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the tokenizers library raises bare Exception for damaged files
            raise ConfigError(f"tokenizer {path}: cannot be read ({error}); it needs tokenizer.json") from error
        return cls(tokenizer, _end_tokens(path))

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included; a model may have more rows of logits."""
        return len(self._tokenizer)

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids after which generation is over."""
        return self._end_tokens

    def encode(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """Return token ids; ``special_tokens`` adds what the model wants around plain text, such as a first token."""
        if len(text) > MAX_CHARACTERS:
            raise ConfigError(f"a text of {len(text)} characters must have at most {MAX_CHARACTERS}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"a text must be Unicode: character {error.start} is half of a surrogate pair, {text[error.start]!a}"
            ) from None
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special_tokens)
        return ids

    def decode(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of whole sequences; for streams use `detokenizer`."""
        text = self._tokenizer.decode(
            list(tokens), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """Return a new incremental detokenizer, for one sequence."""
        skipped = self._special if skip_special else frozenset[int]()
        if self._bytes is not None:
            return ByteDetokenizer(self._bytes, skipped)
        return WindowDetokenizer(lambda tokens: self.decode(tokens, skip_special=skip_special), skipped, self._fallback)

    def render_chat(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> str:
        """Apply the model's chat template (sandboxed). Raises ``ConfigError`` when there is none or it refuses."""
        if not self._tokenizer.chat_template:
            raise ConfigError("this model has no chat template; send a plain prompt instead of messages")
        _check_messages(messages)
        try:
            text = self._tokenizer.apply_chat_template(
                cast("list[dict[str, str]]", [dict(m) for m in messages]),
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        except Exception as error:  # a template is a program, and fails as programs do
            raise ConfigError(f"the model's chat template refused the messages: {error}") from error
        return str(text)

    def encode_chat(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> list[int]:
        """Return the token ids of a conversation; the template itself writes the special tokens."""
        return self.encode(
            self.render_chat(messages, add_generation_prompt=add_generation_prompt), special_tokens=False
        )


def _check_messages(messages: object) -> None:
    """Refuse what is no message, and a role that would write into the template: it is a name, never content."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise ConfigError(f"messages={shown(messages)} must be a list of messages", field="messages")
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise ConfigError(f"a chat message needs 'role' and 'content', got {shown(message)}", field="messages")
        content = message["content"]
        if content is not None and not isinstance(content, (str, list, tuple)):
            raise ConfigError(f"content={shown(content)} must be text or a list of parts", field="content")
        role = message["role"]
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            raise ConfigError(
                f"role={shown(role)} must be a word of letters, digits, '_', '-' or '.'", field="role", value=role
            )


def _end_tokens(path: Path) -> frozenset[int]:
    """Read the end tokens of ``generation_config.json``: often more than the tokenizer's one."""
    file = path / "generation_config.json"
    if not file.is_file():
        return frozenset()
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file}: not a JSON object ({error})") from error
    if found is None:
        return frozenset()
    ends = found if isinstance(found, list) else [found]
    for token in ends:
        check_integer(f"{file}: eos_token_id", token, 0, 2**31 - 1)
    return frozenset(ends)
