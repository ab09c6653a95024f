"""What the flags say, checked as far as no model is needed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate.base import ConfigError

ATTENTIONS = ("hybrid", "full")
FULL_EVERY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model is opened and how it is served.

    ``attention="hybrid"`` leaves every third layer as it is and gives the others a window of ``window`` tokens besides
    the first ``sinks``; ``"full"`` runs the model as it was trained. ``overrides`` are runtime settings of a file; they
    stand above the others.
    """

    model: str | None = None
    attention: Literal["hybrid", "full"] = "full"
    window: int = 128
    sinks: int = 4
    dtype: str = "float32"
    block_size: int = 32
    chunk_size: int = 512
    scratch: bool = True
    max_sequences: int = 1
    kv_cache_memory_bytes: int = 1 << 30
    seed: int = 0
    overrides: Mapping[str, object] = field(default_factory=dict)

    def describe(self) -> str:
        """Say in one line which model this is and how it is served."""
        name = self.model or "SmolLM2-135M-Instruct"
        layers = "attention as trained"
        if self.attention == "hybrid":
            layers = f"every third layer full, the others window {self.window} + {self.sinks} sinks"
        scratch = "on" if self.scratch else "off"
        return f"{name}, {self.dtype}: {layers}; blocks of {self.block_size} tokens, scratch {scratch}"

    def __post_init__(self) -> None:
        if self.model == "":
            raise ConfigError("--model must not be empty: give a path, or leave the flag out")
        if self.attention not in ATTENTIONS:
            raise ConfigError(f"--attention {self.attention} must be one of {', '.join(ATTENTIONS)}")
        for flag, value, least in (
            ("--window", self.window, 1),
            ("--sinks", self.sinks, 0),
            ("--block-size", self.block_size, 1),
            ("--chunk-size", self.chunk_size, 1),
            ("--concurrency", self.max_sequences, 1),
            ("--seed", self.seed, 0),
            ("--kv-cache-memory-bytes", self.kv_cache_memory_bytes, 1),
        ):
            require(flag, value, least)


def require(flag: str, value: float | None, least: int, most: int | None = None) -> None:
    """Raise ``ConfigError`` when a flag's number is too small or too large; None was not given."""
    if value is not None and most is not None and value > most:
        raise ConfigError(f"{flag} {value} must be at most {most}", flag=flag, value=value)
    if value is not None and not value >= least:
        raise ConfigError(f"{flag} {value} must be at least {least}", flag=flag, value=value)
