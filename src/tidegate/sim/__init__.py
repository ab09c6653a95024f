"""The production scheduler, cache, balance and router on a simulated engine and a virtual clock."""

from tidegate.sim.fleet import Fleet
from tidegate.sim.result import PageTable, SimResult, StepTable, distribution
from tidegate.sim.served import RequestTable
from tidegate.sim.simulate import cost_of, run_fleet, simulate
from tidegate.sim.spec import CostSpec, SimSpec

__all__ = [
    "CostSpec",
    "Fleet",
    "PageTable",
    "RequestTable",
    "SimResult",
    "SimSpec",
    "StepTable",
    "cost_of",
    "distribution",
    "run_fleet",
    "simulate",
]
