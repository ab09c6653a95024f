"""Attention-DP balance: when prefills wait so that all ranks do them together. Pure functions of gathered rows."""

from tidegate.scheduling.balance.balancer import Balancer
from tidegate.scheduling.balance.config import AttentionDPConfig, BalancePolicyName, balance_of
from tidegate.scheduling.balance.cost_aware import CostAwareState, CostAwareWait
from tidegate.scheduling.balance.fixed_wait import FixedWait, FixedWaitState
from tidegate.scheduling.balance.meter import BalanceMeter
from tidegate.scheduling.balance.policy import BalancePolicy, Decision, NoBalance
from tidegate.scheduling.balance.rank_row import WIDTH, Column, rank_row

__all__ = [
    "WIDTH",
    "AttentionDPConfig",
    "BalanceMeter",
    "BalancePolicy",
    "BalancePolicyName",
    "Balancer",
    "Column",
    "CostAwareState",
    "CostAwareWait",
    "Decision",
    "FixedWait",
    "FixedWaitState",
    "NoBalance",
    "balance_of",
    "rank_row",
]
