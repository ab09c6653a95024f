"""Plans steps: budgets, policies, the planner, and the scheduler that applies what was planned."""

from tidegate.scheduling.acceptance import accept_drafts
from tidegate.scheduling.config import PolicyName, SchedulerConfig
from tidegate.scheduling.drafts import Drafts, DraftSource
from tidegate.scheduling.intake import ModelLimits
from tidegate.scheduling.ngram_drafts import NgramDrafts
from tidegate.scheduling.plan import Admission, Chunk, Outcome, Plan, Stall, Step, Wait, Waiting
from tidegate.scheduling.scheduler import Scheduler
from tidegate.scheduling.statistics import SchedulerStatistics

__all__ = [
    "Admission",
    "Chunk",
    "DraftSource",
    "Drafts",
    "ModelLimits",
    "NgramDrafts",
    "Outcome",
    "Plan",
    "PolicyName",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerStatistics",
    "Stall",
    "Step",
    "Wait",
    "Waiting",
    "accept_drafts",
]
