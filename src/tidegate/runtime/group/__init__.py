"""Ranks that step together: the driver, the exchange between them, and what is known of a group before torch is there.

Carriers that need a library have doors of their own: ``group.distributed`` and ``group.launch`` need torch,
``group.ray_launch`` needs Ray too.
"""

from tidegate.runtime.group.announcing import LastStep, plan_row
from tidegate.runtime.group.build import build_group, build_rank
from tidegate.runtime.group.environment import GroupEnvironment
from tidegate.runtime.group.exchange import Exchange, LocalExchange
from tidegate.runtime.group.outcome import RankFailure, RanksOutcome
from tidegate.runtime.group.padding import reserve_padding
from tidegate.runtime.group.rank import Rank
from tidegate.runtime.group.rank_group import GroupStep, RankGroup
from tidegate.runtime.group.verdict import EXIT_RANK_DIED, LivenessConfig, Verdict

__all__ = [
    "EXIT_RANK_DIED",
    "Exchange",
    "GroupEnvironment",
    "GroupStep",
    "LastStep",
    "LivenessConfig",
    "LocalExchange",
    "Rank",
    "RankFailure",
    "RankGroup",
    "RanksOutcome",
    "Verdict",
    "build_group",
    "build_rank",
    "plan_row",
    "reserve_padding",
]
