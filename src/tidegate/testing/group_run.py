"""Whole runs of several ranks in one process, on fake engines under a virtual clock, audited after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.base import LayerSpec, VirtualClock
from tidegate.request import Request, RequestOutput, TokenDelta
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import GroupStep, LocalExchange, RankGroup, build_group
from tidegate.testing.serving import ForgettingEngine

FIXED_S = 0.03
PER_TOKEN_S = 0.0001


class GroupRun:
    """``num_ranks`` ranks in step. A step takes ``FIXED_S`` and ``PER_TOKEN_S`` for each token of the busiest rank.

    ``settings`` are those of ``RuntimeConfig``. ``watch`` is called after every step, before the audit.
    """

    def __init__(
        self,
        num_ranks: int,
        layers: Sequence[LayerSpec],
        *,
        vocab_size: int = 31,
        watch: Callable[[GroupStep], None] = lambda _: None,
        **settings: object,
    ) -> None:
        self.engines = [ForgettingEngine(layers, vocab_size=vocab_size) for _ in range(num_ranks)]
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
        self._watch = watch
        self._free = self._supplies()

    def submit(self, request: Request) -> None:
        """Submit a request for any rank."""
        self.group.submit(request)

    def step(self) -> list[TokenDelta]:
        """Step once and audit every rank."""
        deltas = self.group.step()
        self.num_steps += 1
        if self.group.last is not None:
            self._watch(self.group.last)
        for rank in self.group.ranks:
            rank.manager.audit()
            if rank.session.stall is not None:
                raise AssertionError(f"stalled: {rank.session.stall}")
        self.outputs |= {delta.request_id: delta.output for delta in deltas if delta.output is not None}
        return deltas

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
        self.clock.advance(FIXED_S + PER_TOKEN_S * max(tokens))
