"""What balancing decides, and what a policy must offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidegate.base import Int64Array, check_bool, check_integer

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Decision:
    """For every rank alike: whether first chunks wait, and the most tokens a rank's step may have (None: no limit).

    ``max_tokens`` cuts prefill chunks, never decodes; a running prefill, and one that comes back after a suspension,
    keeps at least one block. With ``holds_all_chunks``, holding means these too.
    """

    hold: bool = False
    max_tokens: int | None = None
    holds_all_chunks: bool = False

    def __post_init__(self) -> None:
        for name in ("hold", "holds_all_chunks"):
            check_bool(name, getattr(self, name))
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, 1, 2**31 - 1)


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


class NoBalance:
    """Never holds and never cuts."""

    def start(self) -> None:
        """Return no state."""

    def decide(self, state: None, rows: Int64Array) -> tuple[None, Decision]:
        """Let every prefill run."""
        return None, Decision()
