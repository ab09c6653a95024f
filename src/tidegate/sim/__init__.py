"""The production scheduler, cache, balance and router on a simulated engine and a virtual clock."""

from tidegate.sim.spec import CostSpec, SimSpec

__all__ = ["CostSpec", "SimSpec"]
