"""A model without weights: text is its UTF-8 bytes, output is the alphabet, one token per request and step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.base import Int32Array, RequestTooLong
from tidegate.bench import GroupUse, TargetStatistics
from tidegate.cli import main
from tidegate.cli.settings import ModelSettings
from tidegate.report import PageHistory
from tidegate.request import FinishReason, Request, RequestOutput, Timing, TokenDelta, token_array


@dataclass
class AlphabetModel:
    settings: ModelSettings
    vocab_size: int = 256
    max_seq_len: int = 64
    requests: list[Request] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    finish_reason: FinishReason = FinishReason.LENGTH
    interrupt: bool = False

    def encode(self, text: str, *, chat: bool) -> Int32Array:
        return token_array(list((f"<{text}>" if chat else text).encode()))

    def submit(self, request: Request) -> None:
        if request.max_length > self.max_seq_len:
            raise RequestTooLong(f"request of {request.max_length} tokens:\nthe pool holds {self.max_seq_len}")
        self.requests.append(request)
        self.running[request.request_id] = 0

    def step(self) -> Sequence[TokenDelta]:
        if self.interrupt:
            raise KeyboardInterrupt
        return [self._token(request) for request in self.requests if request.request_id in self.running]

    def rest(self, most_s: float | None) -> None:
        raise AssertionError("every step of this model brings something")

    def statistics(self) -> TargetStatistics:
        pages = PageHistory(("full", "window"), np.array([0.0, 1.0]), np.array([[3, 2], [4, 5]]))
        groups = (
            GroupUse(name="full", num_layers=10, peak_pages=4, plain_peak=4),
            GroupUse(name="window", num_layers=20, peak_pages=5, plain_peak=20),
        )
        return TargetStatistics(num_steps=7, groups=groups, pages=pages)

    def _token(self, request: Request) -> TokenDelta:
        count = self.running[request.request_id] + 1
        self.running[request.request_id] = count
        output = self._output(request) if count == request.max_tokens else None
        if output:
            del self.running[request.request_id]
        token = ord("a") + (count - 1) % 26
        return TokenDelta(request_id=request.request_id, tokens=token_array([token]), text=chr(token), output=output)

    def _output(self, request: Request) -> RequestOutput:
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            tokens=token_array([1] * request.max_tokens),
            finish_reason=self.finish_reason,
            timing=Timing(arrival_s=0.0, admitted_s=0.0, first_token_s=0.0, finished_s=0.0),
            num_cached_tokens=1,
            error="the planted fault" if self.finish_reason is FinishReason.ERROR else None,
        )


@dataclass
class Opened:
    """What the command line opened, and how models shall behave."""

    behaviour: dict[str, object] = field(default_factory=dict)
    models: list[AlphabetModel] = field(default_factory=list)

    def open(self, settings: ModelSettings) -> AlphabetModel:
        self.models.append(AlphabetModel(settings, **self.behaviour))  # type: ignore[arg-type]  # chosen by tests
        return self.models[-1]

    def run(self, *arguments: object) -> int:
        return main([str(argument) for argument in arguments], self.open)
