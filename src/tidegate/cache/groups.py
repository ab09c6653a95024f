"""Layer groups and how their buffers share pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.base import BufferLocation, ConfigError, KVLayout, LayerSpec, Retention
from tidegate.cache.ranges import Rule

STATE_BLOCK = 1 << 40
"""Block size of a state group: one block, longer than any sequence."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers with one retention rule. ``rule`` is what the functions of ``cache.ranges`` take."""

    group_id: int
    retention: Retention
    rule: Rule
    sink_tokens: int
    layer_ids: tuple[int, ...]
    pool_group: int
    row_bytes: tuple[int, ...]

    @property
    def block_tokens(self) -> int:
        """Tokens per block of this group."""
        return self.rule.block_tokens

    @property
    def window(self) -> int | None:
        """Window, counting the query itself; None unless windowed."""
        return self.rule.window

    @property
    def sink_blocks(self) -> int:
        """Blocks at the start that never go stale."""
        return self.rule.sink_blocks

    @property
    def scratch_per_slot(self) -> int:
        """Scratch blocks one slot serves for the layer now executing; 0: scratch is off."""
        return self.rule.scratch_per_slot


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool as one group divides it. Groups that share a pool group may divide equal rows differently."""

    pool_group: int
    pool: int
    sub_pages: int
    sub_page_bytes: int


@dataclass(frozen=True, slots=True)
class BufferTable:
    """The numbers of one buffer that per-layer tables are computed from."""

    sub_pages: int
    sub_page: int
    scratch_stride: int
    scratch_sub_page: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """The whole plan: groups, pool views, buffer tables per group, and the layout an engine sees."""

    groups: tuple[LayerGroup, ...]
    views: tuple[PoolView, ...]
    buffers: tuple[tuple[BufferTable, ...], ...]
    layout: KVLayout
    num_pool_groups: int


@dataclass(frozen=True, slots=True)
class GroupingOptions:
    """What grouping takes from the configuration."""

    tokens_per_block: int
    max_rewind_len: int
    scratch: bool
    separate_pools: bool


def block_tokens_of(layer: LayerSpec, tokens_per_block: int) -> int:
    """Return the layer's block size in tokens, checked against the default and its compression ratio."""
    if layer.retention is Retention.STATE:
        return STATE_BLOCK
    block = layer.block_tokens or tokens_per_block
    if block % tokens_per_block and tokens_per_block % block:
        raise ConfigError(
            f"layer {layer.layer_id}: block_tokens={block} must divide tokens_per_block={tokens_per_block} "
            "or be a multiple of it"
        )
    if block % layer.ratio:
        raise ConfigError(f"layer {layer.layer_id}: block_tokens={block} must be a multiple of its ratio={layer.ratio}")
    return block


def plan_groups(layers: Sequence[LayerSpec], options: GroupingOptions) -> Grouping:
    """Sort layers into groups, lay equal buffers end to end, and let groups with equal rows share a pool group."""
    members = _members(layers, options)
    groups: list[LayerGroup] = []
    views: list[PoolView] = []
    tables: list[tuple[BufferTable, ...]] = []
    locations: list[BufferLocation] = []
    pool_groups: dict[tuple[object, ...], int] = {}
    for group_id, (block, group_layers) in enumerate(members):
        pools = _pools(group_layers, block)
        sizes = sorted(pools, key=lambda size: (-size * len(pools[size]), -size))
        row_bytes = tuple(size * len(pools[size]) for size in sizes)
        key: tuple[object, ...] = (row_bytes, group_id) if options.separate_pools else (row_bytes,)
        pool_group = pool_groups.setdefault(key, len(pool_groups))
        group_tables, group_locations, factor = _place(group_layers, [(size, pools[size]) for size in sizes])
        first = group_layers[0]
        scratch = options.scratch and first.scratch and first.retention is Retention.WINDOW
        groups.append(
            LayerGroup(
                group_id=group_id,
                retention=first.retention,
                rule=Rule(
                    block_tokens=block,
                    window=first.window,
                    sink_blocks=-(-first.sink_tokens // block) if first.window is not None else 0,
                    scratch_per_slot=factor if scratch else 0,
                    max_rewind_len=options.max_rewind_len,
                ),
                sink_tokens=first.sink_tokens,
                layer_ids=tuple(layer.layer_id for layer in group_layers),
                pool_group=pool_group,
                row_bytes=row_bytes,
            )
        )
        for index, (layer_id, role, pool) in enumerate(group_locations):
            table = group_tables[index]
            locations.append(
                BufferLocation(
                    layer_id=layer_id,
                    role=role,
                    group=group_id,
                    index=index,
                    pool=len(views) + pool,
                    sub_page=table.sub_page,
                    scratch_sub_page=table.scratch_sub_page,
                    sub_page_bytes=sizes[pool],
                )
            )
        views.extend(PoolView(pool_group, i, len(pools[size]), size) for i, size in enumerate(sizes))
        tables.append(group_tables)
    layout = KVLayout(tuple(group.block_tokens for group in groups), tuple(locations))
    return Grouping(tuple(groups), tuple(views), tuple(tables), layout, len(pool_groups))


def _members(layers: Sequence[LayerSpec], options: GroupingOptions) -> list[tuple[int, list[LayerSpec]]]:
    if not layers:
        raise ConfigError("layers: a cache needs at least one layer")
    seen: set[int] = set()
    members: dict[tuple[object, ...], tuple[int, list[LayerSpec]]] = {}
    for layer in layers:
        if layer.layer_id in seen:
            raise ConfigError(f"layers: layer_id {layer.layer_id} is declared twice")
        seen.add(layer.layer_id)
        block = block_tokens_of(layer, options.tokens_per_block)
        key = (layer.retention, layer.window, layer.sink_tokens, block, layer.ratio, layer.scratch)
        members.setdefault(key, (block, []))[1].append(layer)
    return list(members.values())


def _pools(layers: Sequence[LayerSpec], block: int) -> dict[int, list[tuple[int, str]]]:
    """Buffers by the bytes one block of them takes; equal ones share a pool row, in the order declared."""
    pools: dict[int, list[tuple[int, str]]] = {}
    for layer in layers:
        entries = 1 if layer.retention is Retention.STATE else block // layer.ratio
        for buffer in layer.buffers:
            pools.setdefault(buffer.bytes_per_entry * entries, []).append((layer.layer_id, buffer.role))
    return pools


def _place(
    layers: Sequence[LayerSpec], pools: Sequence[tuple[int, list[tuple[int, str]]]]
) -> tuple[tuple[BufferTable, ...], list[tuple[int, str, int]], int]:
    """Number the buffers layer by layer; return their tables, ``(layer, role, pool)`` and the scratch factor."""
    tables: dict[tuple[int, str], BufferTable] = {}
    pool_of: dict[tuple[int, str], int] = {}
    factor = 1 << 30
    for pool, (_, buffers) in enumerate(pools):
        of_layer: dict[int, int] = {}
        for layer_id, _ in buffers:
            of_layer[layer_id] = of_layer.get(layer_id, 0) + 1
        factor = min(factor, min(len(buffers) // used for used in of_layer.values()))
        ordinal: dict[int, int] = {}
        for sub_page, (layer_id, role) in enumerate(buffers):
            j = ordinal.get(layer_id, 0)
            ordinal[layer_id] = j + 1
            tables[layer_id, role] = BufferTable(len(buffers), sub_page, of_layer[layer_id], j)
            pool_of[layer_id, role] = pool
    order = [(layer.layer_id, buffer.role) for layer in layers for buffer in layer.buffers]
    return tuple(tables[key] for key in order), [(*key, pool_of[key]) for key in order], factor
