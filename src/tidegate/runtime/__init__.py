"""The only wiring: configuration, the step loop, sessions, and the offline face ``LLM``."""

from tidegate.runtime.build import Parts, build_manager, build_session, cache_config
from tidegate.runtime.config import CacheConfig, LoopConfig, ModelConfig, RuntimeConfig, SpeculativeConfig
from tidegate.runtime.context_allocator import ContextAllocator, DispatchedStep
from tidegate.runtime.drawing import Draw, Drawer, Drawn, DrawnLogprobs, GreedyDrawer
from tidegate.runtime.llm import LLM
from tidegate.runtime.session import Session
from tidegate.runtime.step import StepLoop, StepReport
from tidegate.runtime.worker import InlineWorker, ThreadWorker, Worker

__all__ = [
    "LLM",
    "CacheConfig",
    "ContextAllocator",
    "DispatchedStep",
    "Draw",
    "Drawer",
    "Drawn",
    "DrawnLogprobs",
    "GreedyDrawer",
    "InlineWorker",
    "LoopConfig",
    "ModelConfig",
    "Parts",
    "RuntimeConfig",
    "Session",
    "SpeculativeConfig",
    "StepLoop",
    "StepReport",
    "ThreadWorker",
    "Worker",
    "build_manager",
    "build_session",
    "cache_config",
]
