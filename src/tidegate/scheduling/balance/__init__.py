"""Attention-DP balance: when prefills wait so that all ranks do them together. Pure functions of gathered rows."""

from tidegate.scheduling.balance.policy import BalancePolicy, Decision
from tidegate.scheduling.balance.rank_row import WIDTH, Column, rank_row

__all__ = ["WIDTH", "BalancePolicy", "Column", "Decision", "rank_row"]
