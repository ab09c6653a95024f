"""Tokens to text as they come: never half a character, at a cost that does not grow with what was said before."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"
_LONGEST_CHARACTER = 4
"""Bytes of the longest UTF-8 character: a longer run that still ends in a replacement will never become one."""


class Detokenizer(Protocol):
    """Turns one sequence's tokens into text, piece by piece."""

    def push(self, tokens: Iterable[int]) -> str:
        """Take the next tokens; return the text that is now certain."""
        ...

    def flush(self) -> str:
        """Return what was held back, at the end of the sequence."""
        ...


class ByteDetokenizer:
    """For byte-level vocabularies: the tokens' bytes through an incremental UTF-8 decoder."""

    def __init__(self, table: tuple[bytes, ...], skipped: frozenset[int]) -> None:
        self._table = table
        self._skipped = skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """Take the next tokens; an id beyond the vocabulary (a padded row of logits) has no text."""
        size = len(self._table)
        return self._decoder.decode(b"".join(self._table[t] for t in tokens if t not in self._skipped and t < size))

    def flush(self) -> str:
        """Return a replacement character for bytes that never became one."""
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For other vocabularies: decode a short window of tokens twice, with and without the new ones.

    The window starts at the tokens of the previous piece, since a token's text may depend on its neighbour (a leading
    space), and is bounded, since no character is longer than four tokens. Tokens that stand for one byte
    (``byte_tokens``: id to byte) go through an incremental UTF-8 decoder instead: libraries decode a run of them as
    one, so a broken byte would change text already shown.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], skipped: frozenset[int], byte_tokens: Mapping[int, int]
    ) -> None:
        self._decode = decode
        self._skipped = skipped
        self._byte_tokens = byte_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._before: list[int] = []
        self._held: list[int] = []

    def push(self, tokens: Iterable[int]) -> str:
        """Take the next tokens; return the text that is now certain."""
        return "".join(self._push_one(t) for t in tokens if t not in self._skipped)

    def flush(self) -> str:
        """Return the text of what was held back."""
        return self._take() + self._utf8.decode(b"", final=True)

    def _push_one(self, token: int) -> str:
        byte = self._byte_tokens.get(token)
        if byte is not None:
            text = self._take() + self._utf8.decode(bytes([byte]))
            self._before = [token]
            return text
        text = self._utf8.decode(b"", final=True)
        self._held.append(token)
        may_grow = self._decode([*self._before, *self._held]).endswith(_REPLACEMENT)
        if may_grow and len(self._held) < _LONGEST_CHARACTER:
            return text
        return text + self._take()

    def _take(self) -> str:
        if not self._held:
            return ""
        known = self._decode(self._before)
        text = self._decode([*self._before, *self._held])
        self._before, self._held = self._held, []
        return text[len(known) :]
