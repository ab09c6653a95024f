"""Prompts of random tokens, for measuring lengths rather than text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.base import ConfigError, Int32Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticPrompts:
    """``count`` prompts of ``length`` tokens, the first ``shared`` of them the same in all."""

    count: int
    length: int
    vocab_size: int
    shared: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("length", 1), ("vocab_size", 1), ("shared", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {least}", field=name)
        if self.shared > self.length:
            raise ConfigError(f"shared={self.shared} must not exceed length={self.length}", shared=self.shared)

    def __iter__(self) -> Iterator[Int32Array]:
        rng = np.random.default_rng(self.seed)
        head = rng.integers(0, self.vocab_size, self.shared, dtype=np.int32)
        for _ in range(self.count):
            tail = rng.integers(0, self.vocab_size, self.length - self.shared, dtype=np.int32)
            yield np.concatenate([head, tail])
