"""Ranks that run together: the exchange between them, and what is known of a group before torch is there.

Carriers that need a library have doors of their own: ``group.distributed`` and ``group.launch`` need torch,
``group.ray_launch`` needs Ray too.
"""

from tidegate.runtime.group.environment import GroupEnvironment
from tidegate.runtime.group.exchange import Exchange, LocalExchange
from tidegate.runtime.group.outcome import RankFailure, RanksOutcome
from tidegate.runtime.group.verdict import EXIT_RANK_DIED, LivenessConfig, Verdict

__all__ = [
    "EXIT_RANK_DIED",
    "Exchange",
    "GroupEnvironment",
    "LivenessConfig",
    "LocalExchange",
    "RankFailure",
    "RanksOutcome",
    "Verdict",
]
