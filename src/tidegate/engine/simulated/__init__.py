"""Engines that compute nothing and know how long it would have taken."""

from tidegate.engine.simulated.engine import SimulatedEngine
from tidegate.engine.simulated.fleet_step import CostModel, FleetStep, StepTime

__all__ = ["CostModel", "FleetStep", "SimulatedEngine", "StepTime"]
