"""Sequences that end together leave behind what they would leave if each were published singly."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tidegate.cache.closing
import tidegate.cache.pages
from tidegate.base import LayerSpec, StateError
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.cache.closing import LeafCloser
from tidegate.testing.layouts import full, stacked, window

LONGEST = 64
LAYOUTS = {
    "full": stacked(full()),
    "window": stacked(window(10)),
    "window with sinks": stacked(full(), window(10, sink_tokens=6)),
    "two blocks": stacked(full(block_tokens=4), full(block_tokens=8), window(6)),
}


class Life:
    """One cache under random requests; ``log`` is what it reused and what did not fit."""

    def __init__(self, layers: tuple[LayerSpec, ...], seed: int) -> None:
        self.choose = random.Random(seed)
        self.manager = KVCacheManager(
            KVCacheConfig(
                layers=layers,
                device_bytes=1 << 14,
                max_sequences=12,
                max_seq_len=LONGEST,
                tokens_per_block=4,
                max_chunk_tokens=LONGEST,
            ),
            with_memory=False,
        )
        self.rows: list[int] = []
        self.asked: list[list[int]] = [[self.choose.randrange(3) for _ in range(LONGEST - 16)]]
        self.log: list[object] = []

    def run(self, steps: int) -> list[object]:
        for _ in range(steps):
            kind = self.choose.randrange(7)
            if kind < 2:
                self.admit(self.choose.randint(1, 4))
            elif kind < 5:
                self.decode()
            elif kind == 5 and self.rows:
                self.rewind()
            else:
                self.close()
            self.manager.audit()
        return self.log

    def prompt(self) -> list[int]:
        head = self.choose.choice(self.asked)
        return [*head[: self.choose.randint(1, len(head))], *(self.choose.randrange(3) for _ in range(8))][
            : LONGEST - 16
        ]

    def admit(self, count: int) -> None:
        quote = self.manager.quote()
        admitted: list[list[int]] = []
        for prompt in [self.prompt() for _ in range(count)]:
            self.log.append(self.manager.probe(prompt).reused)
            if len(self.rows) + len(admitted) < 12 and quote.admit(self.manager.candidate(prompt), len(prompt)):
                admitted.append(prompt)
        self.log.append(len(admitted))
        if admitted:
            with self.manager.reserve(quote) as reservation:
                reservation.dispatch()
                reservation.keep()
            self.manager.advance(reservation.rows, reservation.ends, np.full(len(admitted), 1, np.int32))
            self.rows += reservation.rows.tolist()
            self.asked += admitted

    def decode(self) -> None:
        rows = np.array([row for row in self.rows if self.manager.capacity[row] < LONGEST], np.int64)
        quote = self.manager.quote()
        if not len(rows) or not quote.add(rows, self.manager.capacity[rows] + 1):
            self.close()
            return
        with self.manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        tokens = [self.choose.randrange(3) for _ in rows]
        self.manager.advance(reservation.rows, reservation.ends, np.array(tokens, np.int32))

    def rewind(self) -> None:
        row = np.array([self.choose.choice(self.rows)], np.int64)
        to = self.manager.history[row] - self.choose.randint(0, 12)
        try:
            self.manager.rewind(row, to, to + 1)
        except StateError:
            self.log.append("refused")

    def close(self) -> None:
        self.choose.shuffle(self.rows)
        count = self.choose.randint(0, len(self.rows))
        closed, self.rows = self.rows[:count], self.rows[count:]
        if closed and len(self.rows) + count < 12:
            closed += self.manager.fork(closed[0]).tolist()
        self.manager.close(np.array(closed, np.int64))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("few", [0, 4])
def test_batches_leave_what_single_ends_leave(
    layout: str, seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidegate.cache.closing, "_FEW", few)
    together = Life(LAYOUTS[layout], seed).run(250)
    monkeypatch.setattr(LeafCloser, "close", lambda self, rows: (rows, None))
    assert together == Life(LAYOUTS[layout], seed).run(250)


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_eviction_order_outlives_the_clock(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Life(LAYOUTS[layout], 1).run(150)
    monkeypatch.setattr(tidegate.cache.pages, "_LAST_STAMP", 7)
    assert usual == Life(LAYOUTS[layout], 1).run(150)
