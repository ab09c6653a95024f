"""An engine that computes nothing: whoever drives it knows how long its steps take and what they would have drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import KVLayout, LayerSpec, PoolMemory, check_integer, check_tuple
from tidegate.engine.interface import StepInput
from tidegate.engine.simulated.fleet_step import Float64Array


class SimulatedEngine:
    """The ``Engine`` protocol without pages and without logits: rows of the result have no columns."""

    def __init__(self, layers: Sequence[LayerSpec], *, vocab_size: int) -> None:
        self._layers = tuple(layers)
        check_tuple("layers", self._layers, LayerSpec)
        check_integer("vocab_size", vocab_size, 1, 2**31)
        self._vocab_size = vocab_size

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._vocab_size

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Declare the layers."""
        return self._layers

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """Take nothing: no page is ever read."""

    def forward(self, step: StepInput) -> Float64Array:
        """Return as many empty rows as logits are wanted."""
        return np.empty((len(step.logit_positions), 0))
