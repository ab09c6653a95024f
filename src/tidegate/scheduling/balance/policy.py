"""What balancing decides, and what a policy must offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidegate.base import Int64Array

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Decision:
    """For every rank alike: whether first chunks wait, and the most tokens a rank's step may have (None: no limit).

    ``max_tokens`` cuts prefill chunks, never decodes; a running prefill keeps at least one block.
    """

    hold: bool = False
    max_tokens: int | None = None


class BalancePolicy(Protocol[State]):
    """Decides from gathered rows ``[ranks, WIDTH]`` (see ``Column``) alone: no clock, no state of its own.

    Every rank calls it with equal arguments and must get equal results, so it uses integer arithmetic only. Its state
    advances at each exchange and is never taken back.
    """

    def start(self) -> State:
        """Return the state before the first exchange."""
        ...

    def decide(self, state: State, rows: Int64Array) -> tuple[State, Decision]:
        """Return the next state and the decision for the step that the rows announce."""
        ...
