"""How one request's tokens are drawn, validated when it is written down."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ConfigError, check_integer, check_real

MAX_LOGPROBS = 64
MAX_SEED = 2**63 - 1
LEAST_DIVISOR = 1e-6
"""What logits are divided by: anything smaller would take them out of float32, and the whole step with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request. ``temperature=0`` is greedy, ``top_k=0`` and ``top_p=1`` switch those filters off.

    ``logprobs`` asks for the log-probabilities of that many alternatives besides the drawn token's own (0: only its
    own; None: none). Without a ``seed`` the runtime gives the request one, derived from its own seed.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        check_real("temperature", self.temperature, 0.0, 100.0)
        if 0.0 < self.temperature < LEAST_DIVISOR:
            raise ConfigError(
                f"temperature={self.temperature!r} must be 0 or a number in [{LEAST_DIVISOR:g}, 100]",
                field="temperature",
                value=self.temperature,
            )
        check_integer("top_k", self.top_k, 0, 2**31 - 1)
        check_real("top_p", self.top_p, 0.0, 1.0, is_low_open=True)
        check_real("min_p", self.min_p, 0.0, 1.0)
        check_real("repetition_penalty", self.repetition_penalty, LEAST_DIVISOR, 100.0)
        check_real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, MAX_SEED)
        if self.logprobs is not None:
            check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether drawing a token needs the tokens before it."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
