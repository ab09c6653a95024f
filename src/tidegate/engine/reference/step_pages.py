"""Bound pools, and one step's way into them: from a `StepInput` to what the kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tidegate.base import BufferLocation, ConfigError, KVLayout, PoolMemory
from tidegate.engine.interface import StepInput
from tidegate.engine.reference.attention import BufferPages, SequenceSpans
from tidegate.engine.reference.layer_probe import KEY_ROLE, VALUE_ROLE, LayerTrace


@dataclass(frozen=True, slots=True)
class BoundBuffer:
    """A buffer of one layer in its pool: ``pages`` is the pool seen as this buffer's sub-pages."""

    location: BufferLocation
    pages: torch.Tensor
    sub_pages: int

    def in_step(self, step: StepInput) -> BufferPages:
        """Return the buffer's pages as this step addresses them."""
        tables = step.groups[self.location.group]
        if tables.layer_tables is None:
            return BufferPages(self.pages, tables.slots, step.rows, self.sub_pages, self.location.sub_page)
        places = np.arange(step.cu_seqlens.size - 1, dtype=np.int64)
        return BufferPages(self.pages, tables.layer_tables[self.location.index], places, 1, 0)


@dataclass(frozen=True, slots=True)
class BoundLayer:
    """A layer's key and value buffers."""

    keys: BoundBuffer
    values: BoundBuffer


class PoolBinder:
    """Finds buffers in the pools handed to ``Engine.bind``."""

    def __init__(self, layout: KVLayout, pools: Sequence[PoolMemory], dtype: torch.dtype) -> None:
        self._layout = layout
        self._pools = pools
        self._dtype = dtype
        self._where = {(loc.layer_id, loc.role): loc for loc in layout.locations}

    def bind(self, trace: LayerTrace) -> BoundLayer:
        """View one layer's buffers, without copying. Raises ``ConfigError`` when layout and model disagree."""
        location = self._locate(trace, KEY_ROLE)
        tokens = self._layout.block_tokens[location.group]
        return BoundLayer(
            keys=self._view(location, (trace.kv_heads, trace.key_dim, tokens)),
            values=self._view(self._locate(trace, VALUE_ROLE), (trace.kv_heads, tokens, trace.value_dim)),
        )

    def _locate(self, trace: LayerTrace, role: str) -> BufferLocation:
        location = self._where.get((trace.layer_id, role))
        if location is None:
            raise ConfigError(f"layer {trace.layer_id}: the layout has no buffer {role!r}")
        return location

    def _view(self, location: BufferLocation, shape: tuple[int, int, int]) -> BoundBuffer:
        pool = self._pools[location.pool]
        needed = int(np.prod(shape)) * self._dtype.itemsize
        if pool.sub_page_bytes != needed or location.sub_page_bytes != needed:
            raise ConfigError(
                f"layer {location.layer_id} buffer {location.role!r}: a sub-page needs {needed} bytes, pool "
                f"{location.pool} has {pool.sub_page_bytes} and the layout says {location.sub_page_bytes}"
            )
        if not pool.rows.flags.c_contiguous or not pool.rows.flags.writeable:
            raise ConfigError(f"pool {location.pool}: its memory must be contiguous and writable")
        pages = torch.from_numpy(pool.rows).view(-1).view(self._dtype).view(-1, *shape)
        return BoundBuffer(location, pages, pool.sub_pages)


def spans_of(step: StepInput) -> SequenceSpans:
    """Return where the step's sequences lie."""
    begins = step.cu_seqlens[:-1]
    return SequenceSpans(step.cu_seqlens, step.positions[begins])
