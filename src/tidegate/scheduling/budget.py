"""What is left of a step while it is planned, and how long a chunk may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class StepBudget:
    """Tokens, seats and partial prefills still to be spent by one plan."""

    tokens: int
    seats: int
    partials: int

    def spend(self, num_tokens: int, *, is_partial: bool) -> None:
        """Charge a chunk; a partial one leaves its sequence in the middle of the prompt."""
        self.tokens -= num_tokens
        self.partials -= int(is_partial)


def chunk_end(start: int, target: int, tokens: int, align: int) -> int:
    """Return where a chunk of at most ``tokens`` ends: at ``target``, or block aligned; ``start`` if there is none."""
    end = start + tokens
    if end >= target:
        return target
    return max(start, end // align * align)


def fit_chunk(
    start: int,
    end: int,
    align: int,
    *,
    price: Callable[[int], bool],
    can_wait: Callable[[int], bool],
) -> int | None:
    """Return the end of the longest chunk that ``price`` accepts, or None when it has to wait.

    A chunk is cut only when waiting would not help: ``can_wait`` tells whether it could fit once others let go. Each
    cut is priced again, because need is not monotone in the end.
    """
    while end > start:
        if price(end):
            return end
        if can_wait(end):
            return None
        end = (end - 1) // align * align
    return None
