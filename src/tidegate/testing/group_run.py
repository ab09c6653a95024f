"""Whole runs of several ranks in one process, on fake engines under a virtual clock, audited after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from tidegate.base import LayerSpec, VirtualClock
from tidegate.engine import StepInput
from tidegate.request import Request, RequestOutput, TokenDelta
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import LocalExchange, RankGroup, build_group
from tidegate.testing.serving import ForgettingEngine

FIXED_S = 0.03
PER_TOKEN_S = 0.0001


class _WatchedEngine(ForgettingEngine):
    """Tells when it computes."""

    def __init__(self, layers: Sequence[LayerSpec], vocab_size: int, on_forward: Callable[[], None]) -> None:
        super().__init__(layers, vocab_size=vocab_size)
        self._on_forward = on_forward

    def forward(self, step: StepInput) -> npt.NDArray[np.float32]:
        """Tell, then run the step."""
        self._on_forward()
        return super().forward(step)


class GroupRun:
    """``num_ranks`` ranks in step. A step takes ``FIXED_S`` and ``PER_TOKEN_S`` for each token of the busiest rank.

    ``settings`` are those of ``RuntimeConfig``. ``on_forward(rank)`` is called whenever a rank's engine computes.
    """

    def __init__(
        self,
        num_ranks: int,
        layers: Sequence[LayerSpec],
        *,
        vocab_size: int = 31,
        on_forward: Callable[[int], None] = lambda _: None,
        **settings: object,
    ) -> None:
        self.engines = [_WatchedEngine(layers, vocab_size, partial(on_forward, rank)) for rank in range(num_ranks)]
        self.clock = VirtualClock()
        self.group: RankGroup = build_group(
            self.engines,
            LocalExchange(num_ranks),
            RuntimeConfig.from_settings(settings),
            clock=self.clock,
            pace=self._pace,
        )
        self.outputs: dict[str, RequestOutput] = {}
        self.num_steps = 0
        self._free = self._supplies()

    def submit(self, request: Request) -> None:
        """Submit a request for any rank."""
        self.group.submit(request)

    def step(self) -> list[TokenDelta]:
        """Step once and audit every rank."""
        deltas = self.group.step()
        self.num_steps += 1
        for rank in self.group.ranks:
            rank.manager.audit()
            if rank.session.stall is not None:
                raise AssertionError(f"stalled: {rank.session.stall}")
        self.outputs |= {delta.request_id: delta.output for delta in deltas if delta.output is not None}
        return deltas

    def step_until(self, is_reached: Callable[[], bool], max_steps: int = 200) -> None:
        """Step until a state is reached."""
        for _ in range(max_steps):
            if is_reached():
                return
            self.step()
        raise AssertionError(f"not reached after {max_steps} steps")

    def run(self, max_steps: int = 3000) -> dict[str, RequestOutput]:
        """Step until nothing is left."""
        for _ in range(max_steps):
            if not self.group.has_work:
                self.check_idle()
                return self.outputs
            self.step()
        raise AssertionError(f"still at work after {max_steps} steps")

    def check_idle(self) -> None:
        """Raise unless every page of every rank can be had again."""
        if self._supplies() != self._free:
            raise AssertionError(f"{self._supplies()} pages can be had of {self._free}")

    def expected(self, request: Request) -> list[int]:
        """Return what the request's output must be, computed without any cache."""
        return self.engines[0].continuation(request.prompt.tolist(), request.max_tokens)

    def _supplies(self) -> list[tuple[int, ...]]:
        return [rank.manager.quote().supply for rank in self.group.ranks]

    def _pace(self, tokens: Sequence[int]) -> None:
        if any(tokens):
            self.clock.advance(FIXED_S + PER_TOKEN_S * max(tokens))
