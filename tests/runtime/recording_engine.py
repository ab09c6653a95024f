"""An engine that computes the logits of every token, keeps them, and passes on those that were asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tidegate.base import Int64Array, KVLayout, LayerSpec, PoolMemory
from tidegate.engine import Engine, StepInput


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One sequence's part of a step."""

    row: int
    start: int
    tokens: Int64Array
    logits: torch.Tensor

    @property
    def end(self) -> int:
        """Its first position that was not computed."""
        return self.start + len(self.tokens)


class RecordingEngine:
    """Wraps another engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.pieces: list[Piece] = []

    @property
    def vocab_size(self) -> int:
        """That of the engine."""
        return self._engine.vocab_size

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Those of the engine."""
        return self._engine.kv_layers()

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """Pass the pools on."""
        self._engine.bind(layout, pools)

    def forward(self, step: StepInput) -> torch.Tensor:
        """Compute the step, keeping everything."""
        every = np.arange(len(step.token_ids), dtype=np.int64)
        logits = torch.as_tensor(self._engine.forward(dataclasses.replace(step, logit_positions=every)))
        for row, begin, end in zip(step.rows, step.cu_seqlens[:-1], step.cu_seqlens[1:], strict=True):
            self.pieces.append(
                Piece(int(row), int(step.positions[begin]), step.token_ids[begin:end].copy(), logits[begin:end])
            )
        return logits[torch.from_numpy(step.logit_positions.copy())]

    def by_context(self, contexts: Sequence[Sequence[int]]) -> list[list[Piece]]:
        """Sort the pieces by the contexts they belong to, told apart by what a row computed in one go."""
        of_context: list[list[Piece]] = [[] for _ in contexts]
        for stay in self._stays():
            tokens = np.concatenate([piece.tokens for piece in stay]).tolist()
            start, end = stay[0].start, stay[-1].end
            (owner,) = [i for i, context in enumerate(contexts) if list(context[start:end]) == tokens]
            of_context[owner].extend(stay)
        return of_context

    def _stays(self) -> list[list[Piece]]:
        """Return each sequence's pieces from when it took a row to when it left it."""
        stays: list[list[Piece]] = []
        of_row: dict[int, list[Piece]] = {}
        for piece in self.pieces:
            stay = of_row.get(piece.row)
            if stay is not None and stay[-1].end == piece.start:
                stay.append(piece)
            else:
                of_row[piece.row] = [piece]
                stays.append(of_row[piece.row])
        return stays
