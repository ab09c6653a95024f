"""The truth about one running sequence, kept apart from the cache: what it computed, accepted and settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.cache import ReuseScope
from tidegate.testing.cache_model import ModelSequence


@dataclass(slots=True)
class Running:
    """A row: its model, and ahead of that what executed but unsettled steps computed and sampled."""

    row: int
    scope: ReuseScope
    salt: int
    model: ModelSequence
    computed: int = 0
    sampled: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.computed = self.model.history

    @property
    def context(self) -> list[int]:
        """Known tokens and those sampled since."""
        return self.model.tokens + self.sampled

    @property
    def furthest_end(self) -> int:
        """Where a next step may end if each of its tokens is to be known when it runs."""
        known = len(self.model.tokens)
        for _, end in self.model.steps:
            known = max(known, end + 1)
        return known

    @property
    def is_cut(self) -> bool:
        """Tell whether an open step begins beyond what settled, so that it can only be given up."""
        return any(begin > self.computed for begin, _ in self.model.steps[:1])

    def inputs(self, start: int, end: int, drafts: Sequence[int]) -> list[int]:
        """Return the tokens of a step; drafts fill in beyond the known context."""
        context = self.context
        return (context + list(drafts[: max(0, end - len(context))]))[start:end]

    def accept(self, start: int, tokens: Sequence[int], outputs: Sequence[int]) -> int:
        """Take the outputs after each input token: keep the drafts they confirm, and return where settling may go."""
        known = len(self.context)
        end = start + len(tokens)
        if end >= known:
            accepted = known
            while accepted < end and tokens[accepted - start] == outputs[accepted - 1 - start]:
                accepted += 1
            self.sampled += [*tokens[known - start : accepted - start], outputs[accepted - 1 - start]]
            end = accepted
        self.computed = end
        return end

    def settle(self, history: int, accepted: int) -> list[int]:
        """Settle the oldest open step at ``history`` and return the tokens that became known."""
        fresh = self.context[len(self.model.tokens) : history + 1]
        self.model.settle(history)
        self.model.tokens += fresh
        if history == accepted:
            self.sampled = self.sampled[len(fresh) :]
        else:
            self.cut()
        return fresh

    def cut(self) -> None:
        """Forget what was computed beyond the history: it hangs on tokens that did not come true."""
        self.sampled = []
        self.computed = self.model.history
