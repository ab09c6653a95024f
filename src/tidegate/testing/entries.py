"""Where an engine's entries lie: layers bound to pools, and the entries that a step writes and reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.base import (
    BufferLocation,
    ByteArray,
    ConfigError,
    EngineError,
    GroupTables,
    Int64Array,
    KVLayout,
    LayerSpec,
    PoolMemory,
    Retention,
)
from tidegate.engine import StepInput
from tidegate.testing.fingerprints import buffer_key


@dataclass(frozen=True, slots=True)
class BoundBuffer:
    """One buffer of a layer; ``entries`` is its whole pool seen as entries of this buffer's size."""

    name: str
    key: int
    location: BufferLocation
    entries: ByteArray
    sub_pages: int


@dataclass(frozen=True, slots=True)
class BoundLayer:
    """One layer, its group, and how many entries of it a block holds."""

    spec: LayerSpec
    group: int
    per_block: int
    buffers: tuple[BoundBuffer, ...]

    @property
    def is_state(self) -> bool:
        """Tell whether the layer keeps one running state instead of an entry per token."""
        return self.spec.retention is Retention.STATE


@dataclass(frozen=True, slots=True)
class Spans:
    """The sequences of a step: ``rows[i]`` computes positions ``starts[i]`` to ``ends[i] - 1``."""

    rows: Int64Array
    starts: Int64Array
    ends: Int64Array
    cu_seqlens: Int64Array


@dataclass(frozen=True, slots=True)
class Touched:
    """Entries by their sequence's ``place`` in the step, last token ``position``, ``block``, ``offset`` therein."""

    place: Int64Array
    position: Int64Array
    block: Int64Array
    offset: Int64Array


def bind_layers(specs: Sequence[LayerSpec], layout: KVLayout, pools: Sequence[PoolMemory]) -> tuple[BoundLayer, ...]:
    """Find each layer's buffers. Raises ``ConfigError`` where a sub-page and a block disagree in size."""
    by_name = {(location.layer_id, location.role): location for location in layout.locations}
    bound = []
    for spec in specs:
        locations = [by_name[spec.layer_id, buffer.role] for buffer in spec.buffers]
        group = locations[0].group
        per_block = 1 if spec.retention is Retention.STATE else layout.block_tokens[group] // spec.ratio
        buffers = []
        for ordinal, (buffer, location) in enumerate(zip(spec.buffers, locations, strict=True)):
            pool, name = pools[location.pool], f"layer {spec.layer_id}, buffer {buffer.role!r}"
            if location.group != group or pool.sub_page_bytes != per_block * buffer.bytes_per_entry:
                raise ConfigError(
                    f"{name}: group {location.group} with sub-pages of {pool.sub_page_bytes} bytes; expected group "
                    f"{group} and {per_block} entries of {buffer.bytes_per_entry} bytes"
                )
            entries = pool.rows.reshape(-1, buffer.bytes_per_entry)
            buffers.append(BoundBuffer(name, buffer_key(spec.layer_id, ordinal), location, entries, pool.sub_pages))
        bound.append(BoundLayer(spec, group, per_block, tuple(buffers)))
    return tuple(bound)


def spans_of(step: StepInput) -> Spans:
    """Return the step's sequences. Raises ``EngineError`` where its arrays contradict each other."""
    cu_seqlens = step.cu_seqlens.astype(np.int64)
    lengths = np.diff(cu_seqlens)
    if not len(step.rows) or len(lengths) != len(step.rows) or (lengths < 1).any():
        raise EngineError(f"cu_seqlens {cu_seqlens.tolist()} does not give each of {len(step.rows)} rows a token")
    if len(step.token_ids) != cu_seqlens[-1] or len(step.positions) != cu_seqlens[-1]:
        raise EngineError(
            f"{len(step.token_ids)} tokens and {len(step.positions)} positions; cu_seqlens ends at {cu_seqlens[-1]}"
        )
    if len(np.unique(step.rows)) != len(step.rows):
        raise EngineError(f"rows {step.rows.tolist()} name a sequence twice")
    starts = step.positions[cu_seqlens[:-1]]
    local = np.arange(len(step.positions)) - np.repeat(cu_seqlens[:-1], lengths)
    if (step.positions != np.repeat(starts, lengths) + local).any():
        raise EngineError("positions of a sequence are not consecutive")
    return Spans(step.rows, starts, starts + lengths, cu_seqlens)


def written_entries(layer: BoundLayer, spans: Spans) -> Touched:
    """Return the entries that the step completes."""
    ratio = layer.spec.ratio
    return _entries(layer, np.arange(len(spans.rows)), spans.starts // ratio, spans.ends // ratio)


def read_entries(layer: BoundLayer, places: Int64Array, starts: Int64Array, ends: Int64Array) -> Touched:
    """Return the entries below ``ends`` that queries at ``starts`` and later, up to ``ends``, attend to."""
    spec = layer.spec
    if spec.window is None:
        return _entries(layer, places, np.zeros_like(ends), ends // spec.ratio)
    oldest = np.minimum(np.maximum(starts - spec.window + 1, 0), ends)
    sinks = np.minimum(oldest, spec.sink_tokens)
    return _entries(
        layer,
        np.concatenate([places, places]),
        np.concatenate([np.zeros_like(oldest), oldest]),
        np.concatenate([sinks, ends]),
    )


def state_entries(places: Int64Array, positions: Int64Array) -> Touched:
    """Return the running states of these sequences, as they are after each position."""
    zeros = np.zeros_like(places)
    return Touched(places, positions, zeros, zeros)


def _entries(layer: BoundLayer, places: Int64Array, begins: Int64Array, ends: Int64Array) -> Touched:
    """Flatten one range of entries per place."""
    lengths = ends - begins
    skipped = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    entry = np.repeat(begins - skipped[:-1], lengths) + np.arange(skipped[-1])
    position = (entry + 1) * layer.spec.ratio - 1
    return Touched(np.repeat(places, lengths), position, entry // layer.per_block, entry % layer.per_block)


def entry_index(
    layer: BoundLayer, buffer: BoundBuffer, tables: GroupTables, rows: Int64Array, touched: Touched
) -> Int64Array:
    """Return each entry's place in its pool. Raises ``EngineError`` for a block that has no page."""
    location, block = buffer.location, touched.block
    table = tables.slots if tables.layer_tables is None else tables.layer_tables[location.index]
    line = rows[touched.place] if tables.layer_tables is None else touched.place
    inside = block < table.shape[1]
    value = np.where(inside, table[line, np.where(inside, block, 0)].astype(np.int64), -1)
    sub_page = value if tables.layer_tables is not None else value * buffer.sub_pages + location.sub_page
    bad = np.flatnonzero((value < 0) | ((sub_page + 1) * layer.per_block > len(buffer.entries)))
    if len(bad):
        found = int(value[bad[0]])
        raise error_at(buffer, rows, touched, int(bad[0]), f"the table says {found}, which is no page of the pool")
    return sub_page * layer.per_block + touched.offset


def error_at(buffer: BoundBuffer, rows: Int64Array, touched: Touched, which: int, what: str) -> EngineError:
    """Return the error of one entry, with its layer, row, position and block as evidence."""
    row, position = int(rows[touched.place[which]]), int(touched.position[which])
    block = int(touched.block[which])
    return EngineError(
        f"{buffer.name}: row {row}, position {position}, block {block}: {what}",
        layer=buffer.location.layer_id,
        role=buffer.location.role,
        row=row,
        position=position,
        block=block,
    )
