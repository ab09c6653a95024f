"""How ranks tell each other what they are about to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.base import Int64Array


class Exchange(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def local(self) -> tuple[int, ...]: ...

    def gather(self, rows: Int64Array) -> Int64Array: ...

    def broadcast(self, payload: bytes, num_bytes: int) -> bytes: ...

    def collect(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]: ...

    def sleep(self, timeout_s: float) -> bool: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class LocalExchange:
    def __init__(self, num_ranks: int) -> None:
        self.size = num_ranks
        self.local = tuple(range(num_ranks))

    def gather(self, rows: Int64Array) -> Int64Array:
        return rows.copy()

    def broadcast(self, payload: bytes, num_bytes: int) -> bytes:
        return payload

    def collect(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
        return list(payloads)

    def sleep(self, timeout_s: float) -> bool:
        return False

    def wake(self) -> None: ...

    def close(self) -> None: ...
