"""From settings and engines to ranks that step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.base import Clock, ConfigError, SystemClock
from tidegate.engine import Engine
from tidegate.runtime.build import build_manager, wire
from tidegate.runtime.config import RuntimeConfig
from tidegate.runtime.group.exchange import Exchange
from tidegate.runtime.group.intake import Intake
from tidegate.runtime.group.padding import reserve_padding
from tidegate.runtime.group.rank import Rank
from tidegate.runtime.group.rank_group import RankGroup
from tidegate.scheduling import balance_of

if TYPE_CHECKING:
    from tidegate.runtime.text_streams import TextStreams


def build_rank(
    engine: Engine,
    config: RuntimeConfig,
    *,
    eos_token_ids: tuple[int, ...] = (),
    text: TextStreams | None = None,
    clock: Clock,
) -> Rank:
    """Build a rank around an engine that is not bound yet. Its cache has one row more, for the padding entry."""
    manager = build_manager(engine, config, num_extra_rows=1)
    padding = reserve_padding(manager)
    wired = wire(engine, manager, config, eos_token_ids=eos_token_ids, text=text, clock=clock, padding=padding)
    return Rank(wired.session, wired.scheduler, wired.loop, manager, clock=clock)


def build_group(
    engines: Sequence[Engine],
    exchange: Exchange,
    config: RuntimeConfig,
    *,
    eos_token_ids: tuple[int, ...] = (),
    text: TextStreams | None = None,
    clock: Clock | None = None,
    pace: Callable[[Sequence[int]], None] | None = None,
) -> RankGroup:
    """Build the ranks of this process, one for each engine, in the order of ``exchange.local``."""
    if len(engines) != len(exchange.local):
        raise ConfigError(
            f"{len(engines)} engines for ranks {list(exchange.local)}: one for each rank of this process",
            field="engines",
        )
    clock = clock or SystemClock()
    ranks = [build_rank(engine, config, eos_token_ids=eos_token_ids, text=text, clock=clock) for engine in engines]
    intake = Intake(
        config.routing,
        exchange.size,
        config.scheduler.max_batch_size,
        check=ranks[0].session.check,
        now=clock.now,
    )
    balancer = balance_of(config.attention_dp_config, config.scheduler.max_batch_size)
    return RankGroup(ranks, exchange, intake, balancer, clock=clock, pace=pace)
