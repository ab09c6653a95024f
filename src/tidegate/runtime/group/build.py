"""From settings and engines to ranks that step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.base import Clock, ConfigError, SystemClock
from tidegate.engine import Engine
from tidegate.runtime.build import USUAL, Parts, build_manager, wire
from tidegate.runtime.config import RuntimeConfig
from tidegate.runtime.group.exchange import Exchange
from tidegate.runtime.group.intake import Intake
from tidegate.runtime.group.padding import reserve_padding
from tidegate.runtime.group.rank import Rank
from tidegate.runtime.group.rank_group import RankGroup
from tidegate.scheduling import BalancePolicy, Balancer, DraftSource, SchedulerConfig, balance_of

if TYPE_CHECKING:
    from tidegate.runtime.text_streams import TextStreams


def build_rank(
    engine: Engine,
    config: RuntimeConfig,
    *,
    eos_token_ids: tuple[int, ...] = (),
    text: TextStreams | None = None,
    clock: Clock,
    drafts: DraftSource | None = None,
    parts: Parts = USUAL,
) -> Rank:
    """Build a rank around an engine that is not bound yet. Its cache has one row more, for the padding entry.

    ``max_waiting`` bounds the queue in front of all ranks, not a rank's own.
    """
    config = replace(config, scheduler=replace(config.scheduler, max_waiting=None))
    manager = build_manager(engine, config, num_extra_rows=1, with_memory=parts.with_memory)
    padding = reserve_padding(manager)
    wired = wire(
        engine,
        manager,
        config,
        eos_token_ids=eos_token_ids,
        text=text,
        clock=clock,
        drafts=drafts,
        padding=padding,
        parts=parts,
    )
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
    policy: BalancePolicy[Any] | None = None,
    parts: Sequence[Parts] | None = None,
) -> RankGroup:
    """Build the ranks of this process, one for each engine, in the order of ``exchange.local``.

    ``parts`` are those of each rank. ``policy`` balances instead of the one that ``attention_dp_config`` names, within
    the bound given there. Raises ``ConfigError`` when first chunks would be held for two reasons at once.
    """
    if len(engines) != len(exchange.local):
        raise ConfigError(
            f"{len(engines)} engines for ranks {list(exchange.local)}: one for each rank of this process",
            field="engines",
        )
    balance, scheduler = config.attention_dp_config, config.scheduler
    if balance.enable_balance or policy is not None:
        _check_no_batch_wait(scheduler)
    clock = clock or SystemClock()
    ranks = [
        build_rank(engine, config, eos_token_ids=eos_token_ids, text=text, clock=clock, parts=own)
        for engine, own in zip(engines, parts or [USUAL] * len(engines), strict=True)
    ]
    intake = Intake(config.routing, scheduler, exchange.size, check=ranks[0].session.check, now=clock.now)
    balancer: Balancer[Any] = balance_of(balance, scheduler.max_batch_size)
    if policy is not None:
        balancer = Balancer(policy, balance.hold_bound)
    return RankGroup(ranks, exchange, intake, balancer, clock=clock, pace=pace)


def _check_no_batch_wait(config: SchedulerConfig) -> None:
    for name in ("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio", "batch_wait_timeout_ms"):
        if getattr(config, name):
            raise ConfigError(
                f"{name}={getattr(config, name)} must be 0 with attention-DP balance: that decides what waits",
                field=name,
                value=getattr(config, name),
            )
