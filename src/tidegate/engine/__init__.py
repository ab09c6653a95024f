"""Engines: the boundary, the reference engine on real models, sampling."""

from tidegate.engine.interface import Engine, GroupTables, StepInput

__all__ = ["Engine", "GroupTables", "StepInput"]
