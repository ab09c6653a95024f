"""Where a benchmark's requests come from: a file, or random tokens of given lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.base import ConfigError
from tidegate.bench import SyntheticPrompts
from tidegate.cli.prompt_file import PromptLine, read_prompts
from tidegate.cli.served_model import ServedModel
from tidegate.cli.settings import require
from tidegate.request import Request, SamplingParams, check_vocabulary

_SYNTHETIC_REQUESTS = 16
_MOST_REQUESTS = 1 << 20
_MOST_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """``file`` None: synthetic prompts. Those produce exactly ``output_len`` tokens, others may end before."""

    file: Path | None
    input_len: int
    output_len: int
    shared_len: int = 0
    num_requests: int | None = None
    chat: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for flag, value, least, most in (
            ("--input-len", self.input_len, 1, _MOST_TOKENS),
            ("--output-len", self.output_len, 1, _MOST_TOKENS),
            ("--shared-len", self.shared_len, 0, _MOST_TOKENS),
            ("--num-requests", self.num_requests, 1, _MOST_REQUESTS),
        ):
            require(flag, value, least, most)
        if self.shared_len > self.input_len:
            raise ConfigError(f"--shared-len {self.shared_len} must not exceed --input-len {self.input_len}")

    def read(self) -> list[PromptLine]:
        """Read the file, if there is one; needs no model, so that a bad file fails at once."""
        return read_prompts(self.file) if self.file else []

    def requests(self, lines: Sequence[PromptLine], served: ServedModel) -> list[Request]:
        """Write the requests; prompts of a file are taken in turn until there are ``num_requests``."""
        if self.file is None:
            return self._synthetic(served.vocab_size)
        return [
            self._request(index, lines[index % len(lines)], served) for index in range(self.num_requests or len(lines))
        ]

    def _synthetic(self, vocab_size: int) -> list[Request]:
        prompts = SyntheticPrompts(
            count=self.num_requests or _SYNTHETIC_REQUESTS,
            length=self.input_len,
            shared=self.shared_len,
            vocab_size=vocab_size,
            seed=self.seed,
        )
        return [
            Request(
                request_id=f"request-{index}",
                prompt=prompt,
                sampling=SamplingParams(temperature=0.0),
                max_tokens=self.output_len,
                ignore_eos=True,
            )
            for index, prompt in enumerate(prompts)
        ]

    def _request(self, index: int, line: PromptLine, served: ServedModel) -> Request:
        tokens = served.encode(line.prompt, chat=self.chat) if isinstance(line.prompt, str) else line.prompt
        check_vocabulary(tokens, served.vocab_size, field=f"{self.file}, prompt {index + 1}: tokens")
        return Request(
            request_id=f"request-{index}",
            prompt=tokens,
            sampling=SamplingParams(temperature=0.0),
            max_tokens=line.max_tokens or self.output_len,
        )
