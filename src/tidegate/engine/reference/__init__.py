"""The reference engine: real models through ``transformers``, on paged keys and values."""

from tidegate.engine.reference.engine import ReferenceEngine
from tidegate.engine.reference.options import EngineOptions, WindowPattern

__all__ = ["EngineOptions", "ReferenceEngine", "WindowPattern"]
