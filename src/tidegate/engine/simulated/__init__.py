"""Engines that compute nothing and know how long it would have taken."""

from tidegate.engine.simulated.engine import SimulatedEngine
from tidegate.engine.simulated.fleet_step import CostModel, FleetStep, StepTime
from tidegate.engine.simulated.hardware import HARDWARE, Hardware, hardware_of
from tidegate.engine.simulated.kernel_tables import Grid, KernelTables
from tidegate.engine.simulated.linear import LinearCost
from tidegate.engine.simulated.model_shape import Attention, FeedForward, ModelShape
from tidegate.engine.simulated.models import MODELS, model_of
from tidegate.engine.simulated.roofline import RooflineCost, memory_left
from tidegate.engine.simulated.table_cost import TableCost

__all__ = [
    "HARDWARE",
    "MODELS",
    "Attention",
    "CostModel",
    "FeedForward",
    "FleetStep",
    "Grid",
    "Hardware",
    "KernelTables",
    "LinearCost",
    "ModelShape",
    "RooflineCost",
    "SimulatedEngine",
    "StepTime",
    "TableCost",
    "hardware_of",
    "memory_left",
    "model_of",
]
