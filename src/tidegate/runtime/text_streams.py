"""A request's tokens as text, piece by piece, until a stop string ends it. Apart, because text needs transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.request import Request
from tidegate.text import Detokenizer, StopStrings, Tokenizer


@dataclass(frozen=True, slots=True)
class TextPiece:
    """``text`` that may be shown, the number of tokens taken, and whether a stop string ended the stream."""

    text: str
    num_tokens: int
    is_stopped: bool = False


class TextStream:
    """One request's text."""

    def __init__(self, detokenizer: Detokenizer, request: Request) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(request.stop)
        self._min_tokens = request.min_tokens
        self._num_tokens = 0
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._shown)

    def push(self, tokens: Sequence[int]) -> TextPiece:
        """Take new tokens, at most up to the one that completes a stop string."""
        pieces: list[str] = []
        for count, token in enumerate(tokens, start=1):
            self._num_tokens += 1
            piece = self._detokenizer.push((token,))
            if self._num_tokens < self._min_tokens:
                pieces.append(piece)
                continue
            scan = self._stops.push(piece)
            pieces.append(scan.text)
            if scan.stopped_by is not None:
                return self._show(pieces, count, is_stopped=True)
        return self._show(pieces, len(tokens), is_stopped=False)

    def flush(self) -> TextPiece:
        """Return what was held back; it may complete a stop string once more."""
        scan = self._stops.push(self._detokenizer.flush())
        is_stopped = scan.stopped_by is not None
        return self._show([scan.text] if is_stopped else [scan.text, self._stops.flush()], 0, is_stopped=is_stopped)

    def _show(self, pieces: list[str], count: int, *, is_stopped: bool) -> TextPiece:
        text = "".join(pieces)
        self._shown.append(text)
        return TextPiece(text, count, is_stopped)


class TextStreams:
    """Text of a model: prompts in, streams out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Ids after which generation is over."""
        return tuple(sorted(self._tokenizer.end_tokens))

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a plain prompt."""
        return self._tokenizer.encode(prompt)

    def encode_chat(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """Return the token ids of a conversation, ready for the answer."""
        return self._tokenizer.encode_chat(messages)

    def open(self, request: Request) -> TextStream:
        """Return a new stream for a request."""
        return TextStream(self._tokenizer.detokenizer(), request)
