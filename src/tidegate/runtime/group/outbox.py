"""What ranks of other processes have for rank 0: their requests' tokens and ends, one step late."""

from __future__ import annotations

from tidegate.base import Int64Array
from tidegate.request import TokenDelta, decode_deltas, encode_deltas
from tidegate.runtime.group.exchange import Exchange
from tidegate.scheduling import Column


class Outbox:
    """Announces its size in the next row, then sends; where rank 0 lives nothing is sent."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._is_leader = 0 in exchange.local
        self._payload = b""

    @property
    def has_pending(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._payload)

    def sizes(self, num_local: int) -> Int64Array | list[int]:
        """Return what to announce for each rank of this process: all of it goes with the first."""
        return [len(self._payload)] + [0] * (num_local - 1)

    def exchange(self, rows: Int64Array, deltas: list[TokenDelta]) -> list[TokenDelta]:
        """Send what was announced and keep the new deltas for the next step; return all of them where rank 0 lives."""
        sizes = rows[:, Column.OUTBOX_BYTES]
        received: list[TokenDelta] = []
        if sizes.any():
            payloads = [self._payload] + [b""] * (len(self._exchange.local) - 1)
            for payload in self._exchange.collect(payloads, sizes.tolist()):
                if payload:
                    received += decode_deltas(payload)
            self._payload = b""
        if self._is_leader:
            return received + deltas
        own = [delta for delta in deltas if len(delta.tokens) or delta.output is not None]
        self._payload = encode_deltas(own) if own else b""
        return []
