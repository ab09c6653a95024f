"""Bytes of a tier: arrays of equal rows, one per pool, and batched row copies."""

from __future__ import annotations

import mmap
from typing import Protocol

import numpy as np

from tidegate.base import ByteArray, ConfigError, Int32Array


class Memory(Protocol):
    """One tier's bytes of one pool group: pool ``p`` is ``num_slots`` rows of ``row_bytes[p]`` bytes."""

    def rows(self, pool: int) -> ByteArray:
        """Return pool ``pool`` as uint8 ``[num_slots, row_bytes]``, without a copy."""
        ...

    def copy(self, sources: Int32Array, targets: Int32Array) -> None:
        """Copy slot ``sources[i]`` to slot ``targets[i]`` in every pool. Targets are distinct and no source."""
        ...

    def close(self) -> None:
        """Give the memory back; idempotent."""
        ...


class HostMemory:
    """Anonymous memory of this machine. Pages of it become real when first written."""

    def __init__(self, num_slots: int, row_bytes: tuple[int, ...]) -> None:
        self._maps: list[mmap.mmap] = []
        self._rows: list[ByteArray] = []
        for size in row_bytes:
            try:
                mapped = mmap.mmap(-1, max(num_slots * size, 1))
            except (OSError, ValueError, OverflowError) as error:
                self.close()
                raise ConfigError(
                    f"device_bytes: cannot map {num_slots * size} bytes for a pool of {num_slots} slots: {error}"
                ) from error
            self._maps.append(mapped)
            self._rows.append(np.frombuffer(mapped, np.uint8, num_slots * size).reshape(num_slots, size))

    def rows(self, pool: int) -> ByteArray:
        """Return pool ``pool`` as uint8 ``[num_slots, row_bytes]``, without a copy."""
        return self._rows[pool]

    def copy(self, sources: Int32Array, targets: Int32Array) -> None:
        """Copy slot ``sources[i]`` to slot ``targets[i]`` in every pool."""
        for rows in self._rows:
            rows[targets] = rows[sources]

    def close(self) -> None:
        """Drop our references; the mapping ends with its last view."""
        self._rows.clear()
        self._maps.clear()
