"""What leaves: token deltas while a request runs, one output when it ended."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import Int32Array
from tidegate.request.phase import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A request's milestones in clock seconds; None for one never reached."""

    arrival_s: float
    admitted_s: float | None
    first_token_s: float | None
    finished_s: float

    @property
    def wait_s(self) -> float | None:
        """Time in the queue before the first admission."""
        return None if self.admitted_s is None else self.admitted_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from arrival."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of a token under the raw logits, and the likeliest alternatives with theirs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestOutput:
    """A request's end. ``num_cached_tokens`` of the prompt were reused when it was first admitted.

    ``num_overtakes`` others were admitted past it while it could not run.

    ``prompt_logprobs`` has one entry per prompt token; None for the first, and for those it ended too early to score.
    """

    request_id: str
    prompt: Int32Array
    tokens: Int32Array
    finish_reason: FinishReason
    timing: Timing
    num_cached_tokens: int = 0
    num_suspensions: int = 0
    num_overtakes: int = 0
    text: str = ""
    error: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None

    @property
    def num_tokens(self) -> int:
        """How many tokens were produced."""
        return len(self.tokens)

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None with fewer than two."""
        first = self.timing.first_token_s
        if first is None or len(self.tokens) < 2:
            return None
        return (self.timing.finished_s - first) / (len(self.tokens) - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenDelta:
    """New tokens of a request; the last delta carries the finished ``output``.

    ``text`` may lag behind ``tokens`` while a character is incomplete or could be the start of a stop string.
    """

    request_id: str
    tokens: Int32Array
    text: str = ""
    output: RequestOutput | None = None
