"""Public test helpers: a fake engine that checks every read, a plain model of the cache, random lives of both.

``tidegate.testing.strategies`` has Hypothesis strategies; it needs the ``dev`` extra and is not imported here.
"""

from tidegate.testing.cache_model import GroupRule, ModelSequence, ModelTree
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.driver import OpenStep, Plan, StepDriver
from tidegate.testing.fake_engine import FakeEngine

__all__ = [
    "CacheWalk",
    "FakeEngine",
    "GroupRule",
    "ModelSequence",
    "ModelTree",
    "OpenStep",
    "Plan",
    "StepDriver",
]
