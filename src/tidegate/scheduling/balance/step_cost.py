"""How long a step takes, learned from measured ones in integers."""

from __future__ import annotations

from dataclasses import dataclass

_MEMORY = 8
"""An observation loses 1/2**8 of its weight with each new one: the line remembers some hundreds of steps."""
_WEIGHT = 1 << 32
_PS = 10**6


@dataclass(frozen=True, slots=True)
class StepCost:
    """Moments of (tokens of the busiest rank, microseconds), fading; a least-squares line goes through them."""

    weight: int = 0
    tokens: int = 0
    us: int = 0
    tokens_tokens: int = 0
    tokens_us: int = 0
    us_us: int = 0

    def after(self, tokens: int, us: int) -> StepCost:
        """Return the moments with one more step."""
        return StepCost(
            _faded(self.weight) + _WEIGHT,
            _faded(self.tokens) + _WEIGHT * tokens,
            _faded(self.us) + _WEIGHT * us,
            _faded(self.tokens_tokens) + _WEIGHT * tokens * tokens,
            _faded(self.tokens_us) + _WEIGHT * tokens * us,
            _faded(self.us_us) + _WEIGHT * us * us,
        )

    @property
    def is_unknown(self) -> bool:
        """Whether no step was measured yet."""
        return self.weight == 0

    def token_ps(self) -> int:
        """Return picoseconds per token of the busiest rank; 0 when steps of any size take equally long.

        Where steps are too alike for a line, or times vary for other reasons, half of the time counts as the tokens'.
        """
        if self.tokens == 0:
            return 0
        spread = self.weight * self.tokens_tokens - self.tokens * self.tokens
        scatter = self.weight * self.us_us - self.us * self.us
        rise = self.weight * self.tokens_us - self.tokens * self.us
        are_alike = spread * 10_000 <= self.tokens * self.tokens
        is_flat = scatter * 100 <= self.us * self.us
        is_unexplained = rise <= 0 or rise * rise * 4 <= spread * scatter
        if are_alike or (is_unexplained and not is_flat):
            return self.us * _PS // (2 * self.tokens)
        return max(rise, 0) * _PS // spread

    def step_ps(self, tokens: int) -> int:
        """Return the expected picoseconds of a step of so many tokens on the busiest rank."""
        if self.weight == 0:
            return 0
        per_token = self.token_ps()
        return max((self.us * _PS - per_token * self.tokens) // self.weight, 0) + per_token * tokens


def _faded(moment: int) -> int:
    return moment - (moment >> _MEMORY)
