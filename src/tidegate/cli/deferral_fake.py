"""The deferral scenario on fake engines: all ranks in this process, every page checked, time counted.

A step takes ``FIXED_S`` and ``PER_TOKEN_S`` for each token of the busiest rank, since all ranks wait for it. What each
request must produce is computed once, without any cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.base import VirtualClock
from tidegate.cli.deferral_cells import WINDOW, DeferralCell, DeferralLoad
from tidegate.cli.deferral_run import CellRun, ReservedMeter, cell_config
from tidegate.runtime.group import LocalExchange, build_group
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.group_run import FIXED_S, PER_TOKEN_S
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import ForgettingEngine

VOCABULARY = 97
LAYERS = stacked(full(), full(), window(WINDOW), window(WINDOW))


class FakeCells:
    """Runs cells of one load."""

    def __init__(self, load: DeferralLoad) -> None:
        self._load = load
        self._requests = load.requests(VOCABULARY)
        engine = FakeEngine(LAYERS, vocab_size=VOCABULARY)
        self._expected = {r.request_id: engine.continuation(r.prompt.tolist(), r.max_tokens) for r in self._requests}

    def run(self, deferral: str, balance: str, on_finish: Callable[[], None] = lambda: None) -> DeferralCell:
        """Run one cell to its end, or to the first thing that must not happen."""
        load, clock = self._load, VirtualClock()
        meters = [ReservedMeter(ForgettingEngine(LAYERS, vocab_size=VOCABULARY)) for _ in range(load.num_ranks)]
        config = cell_config(load, LAYERS, (deferral, balance), max_num_tokens=2048)

        def pace(tokens: Sequence[int]) -> None:
            if any(tokens):
                clock.advance(FIXED_S + PER_TOKEN_S * max(tokens))

        group = build_group(meters, LocalExchange(load.num_ranks), config, clock=clock, pace=pace)
        run = CellRun(load, group, meters, clock)
        run.lead(self._requests, on_finish)
        return run.cell((deferral, balance), run.counters(), self._expected)
