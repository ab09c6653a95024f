"""A page allocator small enough to check by eye: random slots, unwritten memory is NaN, scratch on demand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tidegate.base import BufferLocation, KVLayout, LayerSpec, PoolMemory
from tidegate.engine import Engine, GroupTables, StepInput

MAX_BLOCKS = 64


@dataclass
class Group:
    """One retention rule: its layers, pools and free slots."""

    layers: list[LayerSpec]
    window: int | None
    sinks: int
    block_tokens: int
    locations: list[BufferLocation] = field(default_factory=list)
    pools: dict[int, PoolMemory] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    def stale(self, h: int) -> range:
        """Blocks that no query at ``h`` or later reads."""
        if self.window is None:
            return range(0)
        b = self.block_tokens
        begin = min(math.ceil(h / b), math.ceil(self.sinks / b))
        return range(begin, max(begin, (h + 1 - self.window) // b))

    def release(self, slot: int) -> None:
        """Give a slot back, poisoned."""
        for pool in self.pools.values():
            pool.rows[slot] = 0xFF
        self.free.append(slot)


class Paging:
    """Drives an engine over sequences of tokens, with or without scratch."""

    def __init__(self, engine: Engine, *, block_tokens: int = 16, scratch: bool = False, seed: int = 0) -> None:
        self.engine = engine
        self.scratch = scratch
        rng = np.random.default_rng(seed)
        rules: dict[tuple[int | None, int, bool], list[LayerSpec]] = {}
        for spec in engine.kv_layers():
            rules.setdefault((spec.window, spec.sink_tokens, spec.scratch), []).append(spec)
        self.groups = [Group(layers, key[0], key[1], block_tokens) for key, layers in rules.items()]
        pools: list[PoolMemory] = []
        for g, group in enumerate(self.groups):
            _lay_out(g, group, pools, rng)
        locations = tuple(loc for group in self.groups for loc in group.locations)
        engine.bind(KVLayout(tuple(block_tokens for _ in self.groups), locations), pools)
        self.arenas = [np.full((8, MAX_BLOCKS), -1, np.int32) for _ in self.groups]
        self.history: dict[int, int] = {}
        self.scratch_slots_used = 0

    def step(self, work: Sequence[tuple[int, np.ndarray]]) -> torch.Tensor:
        """Compute ``tokens`` of each ``(row, tokens)``; return the logits of every one of them."""
        starts = [self.history.get(row, 0) for row, _ in work]
        ends = [start + len(tokens) for start, (_, tokens) in zip(starts, work, strict=True)]
        rows = np.array([row for row, _ in work], np.int64)
        borrowed: list[tuple[Group, int]] = []
        groups = tuple(self._tables(g, rows, starts, ends, borrowed) for g in range(len(self.groups)))
        lengths = [len(tokens) for _, tokens in work]
        step = StepInput(
            token_ids=np.concatenate([tokens for _, tokens in work]).astype(np.int64),
            positions=np.concatenate([np.arange(s, e) for s, e in zip(starts, ends, strict=True)]),
            cu_seqlens=np.cumsum([0, *lengths]).astype(np.int32),
            rows=rows,
            groups=groups,
            logit_positions=np.arange(sum(lengths), dtype=np.int64),
        )
        for array in (step.token_ids, step.positions, step.cu_seqlens, step.rows, step.logit_positions):
            array.flags.writeable = False
        logits = torch.as_tensor(self.engine.forward(step))
        for group, slot in borrowed:
            group.release(slot)
        for row, end in zip(rows.tolist(), ends, strict=True):
            self.history[row] = end
            self._drop_stale(row, end)
        return logits

    def _tables(
        self, g: int, rows: np.ndarray, starts: list[int], ends: list[int], borrowed: list[tuple[Group, int]]
    ) -> GroupTables:
        group, arena, b = self.groups[g], self.arenas[g], self.groups[g].block_tokens
        on_scratch = self.scratch and group.layers[0].scratch
        scratch = [
            sorted(set(group.stale(e)) & set(range(math.ceil(s / b), math.ceil(e / b)))) if on_scratch else []
            for s, e in zip(starts, ends, strict=True)
        ]
        for row, end, on_loan in zip(rows.tolist(), ends, scratch, strict=True):
            for block in range(math.ceil(end / b)):
                if (
                    block not in on_loan
                    and arena[row, block] < 0
                    and block not in group.stale(self.history.get(row, 0))
                ):
                    arena[row, block] = group.free.pop()
        if not any(scratch):
            return GroupTables(_read_only(arena))
        tables = np.full((len(group.locations), len(rows), MAX_BLOCKS), -1, np.int32)
        for i, row in enumerate(rows.tolist()):
            for loc in group.locations:
                own = arena[row] >= 0
                pool = group.pools[loc.pool]
                tables[loc.index, i, own] = arena[row, own] * pool.sub_pages + loc.sub_page
            self._lend_scratch(group, scratch[i], tables[:, i], borrowed)
        return GroupTables(_read_only(arena), _read_only(tables))

    def _lend_scratch(
        self, group: Group, blocks: list[int], table: np.ndarray, borrowed: list[tuple[Group, int]]
    ) -> None:
        per_layer = {
            pool: len([x for x in group.locations if x.pool == pool]) // len(group.layers) for pool in group.pools
        }
        k = min(group.pools[pool].sub_pages // u for pool, u in per_layer.items())
        slots = [group.free.pop() for _ in range(math.ceil(len(blocks) / k))]
        self.scratch_slots_used += len(slots)
        borrowed.extend((group, slot) for slot in slots)
        for n, block in enumerate(blocks):
            for loc in group.locations:
                sub_page = (n % k) * per_layer[loc.pool] + loc.scratch_sub_page
                table[loc.index, block] = slots[n // k] * group.pools[loc.pool].sub_pages + sub_page

    def _drop_stale(self, row: int, history: int) -> None:
        for group, arena in zip(self.groups, self.arenas, strict=True):
            for block in group.stale(history):
                if arena[row, block] >= 0:
                    group.release(int(arena[row, block]))
                    arena[row, block] = -1


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _lay_out(g: int, group: Group, pools: list[PoolMemory], rng: np.random.Generator) -> None:
    """Put the group's buffers into one pool per buffer size, slots in random order."""
    by_size: dict[int, list[tuple[int, str]]] = {}
    for spec in group.layers:
        for buffer in spec.buffers:
            size = buffer.bytes_per_entry * group.block_tokens
            by_size.setdefault(size, []).append((spec.layer_id, buffer.role))
    slots = 3 * MAX_BLOCKS
    for size, buffers in by_size.items():
        rows = np.full((slots, len(buffers) * size), 0xFF, np.uint8)
        for sub_page, (layer_id, role) in enumerate(buffers):
            mine = [r for layer, r in buffers if layer == layer_id]
            group.locations.append(
                BufferLocation(
                    layer_id=layer_id,
                    role=role,
                    group=g,
                    index=len(group.locations),
                    pool=len(pools),
                    sub_page=sub_page,
                    scratch_sub_page=mine.index(role),
                    sub_page_bytes=size,
                )
            )
        group.pools[len(pools)] = PoolMemory(rows, len(buffers), size)
        pools.append(group.pools[len(pools)])
    group.free = rng.permutation(slots).tolist()
