"""The reference engine: real models through ``transformers``, on paged keys and values."""

from tidegate.engine.reference.checkpoint import Checkpoint, default_cache, load_model, open_checkpoint
from tidegate.engine.reference.engine import ReferenceEngine
from tidegate.engine.reference.options import EngineOptions, WindowPattern
from tidegate.engine.reference.packaged_model import DEFAULT_MODEL

__all__ = [
    "DEFAULT_MODEL",
    "Checkpoint",
    "EngineOptions",
    "ReferenceEngine",
    "WindowPattern",
    "default_cache",
    "load_model",
    "open_checkpoint",
]
