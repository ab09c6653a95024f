"""An engine around another: what meters build on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from tidegate.base import KVLayout, LayerSpec, PoolMemory
from tidegate.engine import Engine, StepInput


class WrappedEngine:
    """Hands everything on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._engine.vocab_size

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Return the engine's layers."""
        return self._engine.kv_layers()

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """Bind the engine."""
        self._engine.bind(layout, pools)

    def forward(self, step: StepInput) -> npt.ArrayLike:
        """Compute."""
        return self._engine.forward(step)
