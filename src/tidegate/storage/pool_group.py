"""A pool group: pools whose rows one slot id addresses together, and which of its slots are free."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ByteArray, Int32Array
from tidegate.storage.memory import HostMemory, Memory
from tidegate.storage.slots import FreeStack


@dataclass(frozen=True, slots=True)
class PoolGroupSpec:
    """``num_slots`` slots, each one row of ``row_bytes[p]`` bytes in every pool ``p``."""

    num_slots: int
    row_bytes: tuple[int, ...]


class PoolGroup:
    """Sole writer of which slots are free. Knows no token and no sequence."""

    def __init__(self, spec: PoolGroupSpec, *, with_memory: bool) -> None:
        self.spec = spec
        self.free = FreeStack(spec.num_slots)
        self._memory: Memory | None = HostMemory(spec.num_slots, spec.row_bytes) if with_memory else None

    def rows(self, pool: int) -> ByteArray | None:
        """Return the bytes of one pool, or None when only bookkeeping is done."""
        return None if self._memory is None else self._memory.rows(pool)

    def copy(self, sources: Int32Array, targets: Int32Array) -> None:
        """Copy whole slots; does nothing without memory."""
        if self._memory is not None:
            self._memory.copy(sources, targets)

    def close(self) -> None:
        """Give the memory back; idempotent."""
        if self._memory is not None:
            self._memory.close()
