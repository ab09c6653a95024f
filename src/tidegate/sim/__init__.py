"""The production scheduler, cache, balance and router on a simulated engine and a virtual clock."""

from tidegate.sim.executors import EXECUTORS, Executor, Lost, SerialExecutor, make_executor
from tidegate.sim.fleet import Fleet
from tidegate.sim.result import PageTable, SimResult, StepTable, distribution
from tidegate.sim.served import RequestTable
from tidegate.sim.simulate import cost_of, run_fleet, simulate
from tidegate.sim.spec import CostSpec, SimSpec
from tidegate.sim.sweep import Axis, Cell, Failure, Outcome, Sweep, run_cell, run_sweep, value_text

__all__ = [
    "EXECUTORS",
    "Axis",
    "Cell",
    "CostSpec",
    "Executor",
    "Failure",
    "Fleet",
    "Lost",
    "Outcome",
    "PageTable",
    "RequestTable",
    "SerialExecutor",
    "SimResult",
    "SimSpec",
    "StepTable",
    "Sweep",
    "cost_of",
    "distribution",
    "make_executor",
    "run_cell",
    "run_fleet",
    "run_sweep",
    "simulate",
    "value_text",
]
