"""Ranks that step together: the driver, the exchange with its carriers, padding, routing of what comes in."""

from tidegate.runtime.group.build import build_group, build_rank
from tidegate.runtime.group.exchange import Exchange, LocalExchange
from tidegate.runtime.group.padding import reserve_padding
from tidegate.runtime.group.rank import Rank
from tidegate.runtime.group.rank_group import GroupStep, RankGroup

__all__ = [
    "Exchange",
    "GroupStep",
    "LocalExchange",
    "Rank",
    "RankGroup",
    "build_group",
    "build_rank",
    "reserve_padding",
]
