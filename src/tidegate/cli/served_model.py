"""A model opened for serving, as the commands see it: the seam between flags and runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate.base import Int32Array
from tidegate.bench import TargetStatistics
from tidegate.cli.settings import ModelSettings
from tidegate.request import Request, TokenDelta


class ServedModel(Protocol):
    """Takes requests and runs them step by step."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    def encode(self, text: str, *, chat: bool) -> Int32Array:
        """Turn text into token ids, as a user's turn of the model's chat template if asked."""
        ...

    def submit(self, request: Request) -> None:
        """Take a request; raises a ``TidegateError`` when it is refused."""
        ...

    def step(self) -> Sequence[TokenDelta]:
        """Run one step and return what it produced; nothing when there was nothing to do."""
        ...

    def rest(self, most_s: float | None) -> None:
        """Wait, for ``most_s`` seconds at most, when the last step did nothing and the next ones will not either."""
        ...

    def statistics(self) -> TargetStatistics:
        """Return what happened since it was opened."""
        ...


ModelOpener = Callable[[ModelSettings], ServedModel]
