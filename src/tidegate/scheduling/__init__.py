"""Plans steps: budgets, policies, the planner, and the scheduler that applies what was planned."""

from tidegate.scheduling.acceptance import accept_drafts
from tidegate.scheduling.balance import (
    WIDTH,
    AttentionDPConfig,
    BalanceMeter,
    BalancePolicy,
    Balancer,
    Column,
    CostAwareWait,
    Decision,
    FixedWait,
    NoBalance,
    balance_of,
    rank_row,
)
from tidegate.scheduling.config import PolicyName, SchedulerConfig
from tidegate.scheduling.drafts import Drafts, DraftSource
from tidegate.scheduling.endings import output_of_unstarted
from tidegate.scheduling.intake import ModelLimits, reuse_scope
from tidegate.scheduling.load import RankLoad
from tidegate.scheduling.ngram_drafts import NgramDrafts
from tidegate.scheduling.plan import Admission, Chunk, Outcome, Plan, Stall, Step, Wait, Waiting
from tidegate.scheduling.restricting import without_held
from tidegate.scheduling.scheduler import Scheduler
from tidegate.scheduling.statistics import SchedulerStatistics

__all__ = [
    "WIDTH",
    "Admission",
    "AttentionDPConfig",
    "BalanceMeter",
    "BalancePolicy",
    "Balancer",
    "Chunk",
    "Column",
    "CostAwareWait",
    "Decision",
    "DraftSource",
    "Drafts",
    "FixedWait",
    "ModelLimits",
    "NgramDrafts",
    "NoBalance",
    "Outcome",
    "Plan",
    "PolicyName",
    "RankLoad",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerStatistics",
    "Stall",
    "Step",
    "Wait",
    "Waiting",
    "accept_drafts",
    "balance_of",
    "output_of_unstarted",
    "rank_row",
    "reuse_scope",
    "without_held",
]
