"""The engine boundary: int32 page tables and token arrays in, one logits tensor out.

An engine sees no request, no scheduler and no cache. It declares its layers, binds the pools once, and runs steps in
the order they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy.typing as npt

from tidegate.base import GroupTables, Int32Array, Int64Array, KVLayout, LayerSpec, PoolMemory

__all__ = ["Engine", "GroupTables", "StepInput"]


@dataclass(frozen=True, slots=True)
class StepInput:
    """One forward pass, flattened: sequence ``i`` computes tokens ``cu_seqlens[i]:cu_seqlens[i+1]``.

    ``token_ids`` int64 ``[T]``, ``positions`` int64 ``[T]``, ``cu_seqlens`` int32 ``[n+1]``, ``rows`` int64 ``[n]``,
    ``groups`` one table per layer group, ``logit_positions`` int64 ``[m]``: indices into ``[0, T)`` whose logits are
    wanted, in the order of the rows of the result. Every sequence's positions are consecutive; keys and values of all
    positions before its first one are already in its pages.
    """

    token_ids: Int64Array
    positions: Int64Array
    cu_seqlens: Int32Array
    rows: Int64Array
    groups: tuple[GroupTables, ...]
    logit_positions: Int64Array


class Engine(Protocol):
    """What computes a step."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids; logits have this many columns."""
        ...

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Declare the layers for the cache's configuration."""
        ...

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """Take the pools, without copying. Called before the first step, and again when another cache takes over."""
        ...

    def forward(self, step: StepInput) -> npt.ArrayLike:
        """Write the step's keys and values into their pages, attend, return logits ``[m, vocab_size]``.

        The result is a NumPy array or a torch tensor. Raises ``EngineError`` when the step failed.
        """
        ...
