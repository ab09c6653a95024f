"""Measures whatever serves requests: a target, a load, outcomes with their percentiles."""

from tidegate.bench.load import Load
from tidegate.bench.outcome import Outcome, Percentiles, Summary
from tidegate.bench.runner import Run, run_load
from tidegate.bench.synthetic import SyntheticPrompts
from tidegate.bench.target import GroupUse, Progress, Target, TargetStatistics

__all__ = [
    "GroupUse",
    "Load",
    "Outcome",
    "Percentiles",
    "Progress",
    "Run",
    "Summary",
    "SyntheticPrompts",
    "Target",
    "TargetStatistics",
    "run_load",
]
