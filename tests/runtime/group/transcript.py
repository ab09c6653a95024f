"""The same talk over any exchange, with everything that was heard."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from tidegate.runtime.group import Exchange
from tidegate.scheduling.balance import WIDTH, Column

SIZES = (0, 1, 1000, 1 << 20)


def payload(rank: int, num_bytes: int) -> bytes:
    """Bytes that depend on the rank and the length."""
    return random.Random(1000 * rank + num_bytes).randbytes(num_bytes)


def hear(exchange: Exchange, seed: int) -> Iterator[tuple[str, bytes]]:
    """Talk, and yield what each call brought: the same on all ranks, but for collections, which rank 0 alone has."""
    for turn, size in enumerate((*SIZES, *SIZES)):
        rows = np.stack([_row(seed, rank, turn, size) for rank in exchange.local])
        gathered = exchange.gather(rows)
        yield "gather", gathered.tobytes()
        yield "narrow", exchange.gather(rows[:, :3].copy()).tobytes()
        inbox = int(gathered[0, Column.INBOX_BYTES])
        yield "broadcast", exchange.broadcast(payload(0, inbox) if 0 in exchange.local else b"ignored", inbox)
        outboxes = gathered[:, Column.OUTBOX_BYTES].tolist()
        heard = exchange.collect([payload(rank, outboxes[rank]) for rank in exchange.local], outboxes)
        if 0 in exchange.local:
            assert heard == [payload(rank, num_bytes) for rank, num_bytes in enumerate(outboxes)]
            yield "collect", b"".join(heard)
        else:
            assert heard == []


def _row(seed: int, rank: int, turn: int, inbox: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    row = np.random.default_rng([seed, rank, turn]).integers(-(2**62), 2**62, WIDTH)
    row[Column.INBOX_BYTES] = inbox if rank == 0 else 0
    row[Column.OUTBOX_BYTES] = SIZES[(turn + rank) % len(SIZES)]
    return row
