"""The deferral scenario on real ranks: one process each, the reference engine, real time. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.base import SystemClock
from tidegate.cli.deferral_cells import WINDOW, DeferralCell, DeferralLoad
from tidegate.cli.deferral_run import CellRun, ReservedMeter, cell_config
from tidegate.cli.group_model import leading
from tidegate.cli.settings import FULL_EVERY
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import Exchange, build_group
from tidegate.runtime.model import load_model


class ReferenceCells:
    """Runs cells on the rank of this process. Only rank 0 has results."""

    def __init__(self, load: DeferralLoad, exchange: Exchange, model: str | None) -> None:
        settings = {"model": model, "attention": f"window:{WINDOW}:{FULL_EVERY}"}
        self._engine, _ = load_model(RuntimeConfig.from_settings(settings).model)
        self._load = load
        self._exchange = exchange

    def run(self, deferral: str, balance: str, on_finish: Callable[[], None] = lambda: None) -> DeferralCell | None:
        """Run one cell together with the other ranks; None on every rank but rank 0."""
        load, clock, meter = self._load, SystemClock(), ReservedMeter(self._engine)
        config = cell_config(load, self._engine.kv_layers(), (deferral, balance), max_num_tokens=512)
        group = build_group([meter], self._exchange, config, clock=clock)
        run = CellRun(load, group, [meter], clock)
        if group.is_leader:
            with leading(group):
                run.lead(load.requests(self._engine.vocab_size), on_finish)
        else:
            run.follow()
        counters = self._exchange.gather(run.counters())
        return run.cell((deferral, balance), counters) if group.is_leader else None
