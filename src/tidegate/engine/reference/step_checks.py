"""Refuse a step that does not fit, before any page is written: kernels index memory by what these arrays say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import EngineError, Int64Array, KVLayout, PoolMemory
from tidegate.engine.interface import GroupTables, StepInput


class StepChecks:
    """Knows how large the vocabulary, the tables and the pools are."""

    def __init__(self, vocab_size: int, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        self._vocab_size = vocab_size
        self._block_tokens = layout.block_tokens
        self._slots: list[int] = []
        self._sub_pages: list[Int64Array] = []
        for group in range(len(layout.block_tokens)):
            mine = sorted((loc for loc in layout.locations if loc.group == group), key=lambda loc: loc.index)
            self._slots.append(min((pools[loc.pool].rows.shape[0] for loc in mine), default=0))
            sizes = [pools[loc.pool].rows.shape[0] * pools[loc.pool].sub_pages for loc in mine]
            self._sub_pages.append(np.array(sizes, np.int64))

    def check(self, step: StepInput) -> None:
        """Raise ``EngineError`` when the step's arrays or tables do not fit together or into the pools."""
        self._check_tokens(step)
        if len(step.groups) != len(self._block_tokens):
            raise EngineError(f"{len(step.groups)} page tables for {len(self._block_tokens)} layer groups")
        for group, tables in enumerate(step.groups):
            self._check_table(step, group, tables)

    def _check_tokens(self, step: StepInput) -> None:
        tokens = step.token_ids.size
        lengths = np.diff(step.cu_seqlens)
        if tokens == 0 or step.positions.size != tokens or step.cu_seqlens[0] != 0 or step.cu_seqlens[-1] != tokens:
            raise EngineError(
                f"a step of {tokens} tokens, {step.positions.size} positions, ending at {step.cu_seqlens}"
            )
        if (lengths < 1).any() or step.rows.size != lengths.size:
            raise EngineError(f"{step.rows.size} rows for sequences of {lengths} tokens")
        inner = np.ones(tokens, bool)
        inner[step.cu_seqlens[:-1]] = False
        if (np.diff(step.positions, prepend=-1)[inner] != 1).any() or (step.positions < 0).any():
            raise EngineError("the positions of a sequence must be consecutive and not negative")
        if (step.token_ids < 0).any() or (step.token_ids >= self._vocab_size).any():
            raise EngineError(f"token ids must lie in [0, {self._vocab_size})", largest=int(step.token_ids.max()))

    def _check_table(self, step: StepInput, group: int, tables: GroupTables) -> None:
        block_tokens = self._block_tokens[group]
        begin = step.positions[step.cu_seqlens[:-1]] // block_tokens
        end = step.positions[step.cu_seqlens[1:] - 1] // block_tokens + 1
        entries, limit = self._entries(step, group, tables)
        if int(end.max()) > entries.shape[2]:
            raise EngineError(
                f"group {group}: a sequence reaches {int(end.max())} blocks, its row has {entries.shape[2]}"
            )
        block = np.arange(int(end.max()))
        entries = entries[:, :, : block.size]
        read = block < end[:, None]
        if ((entries >= limit) & read).any():
            raise EngineError(f"group {group}: a page lies beyond its pool", group=group)
        if ((entries < 0) & read & (block >= begin[:, None])).any():
            raise EngineError(f"group {group}: a block that the step writes has no page", group=group)

    def _entries(self, step: StepInput, group: int, tables: GroupTables) -> tuple[np.ndarray, np.ndarray]:
        """Return the step's entries ``[buffers or 1, sequences, width]`` and the first index too large."""
        if tables.layer_tables is not None:
            limit = self._sub_pages[group]
            if tables.layer_tables.shape[:2] != (limit.size, step.rows.size):
                raise EngineError(f"group {group}: per-layer tables of shape {tables.layer_tables.shape}")
            return tables.layer_tables, limit[:, None, None]
        if int(step.rows.min()) < 0 or int(step.rows.max()) >= tables.slots.shape[0]:
            raise EngineError(f"group {group}: rows {step.rows} of a table of {tables.slots.shape[0]}")
        return tables.slots[step.rows][None], np.array(self._slots[group])
