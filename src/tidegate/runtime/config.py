"""The runtime's settings: one frozen section per room, and one flat list of names for users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tidegate.base import ConfigError, check_bool, check_integer, check_real, check_text, shown
from tidegate.routing import RoutingConfig
from tidegate.runtime.deferral import DEFERRALS, DeferralName
from tidegate.scheduling import AttentionDPConfig, SchedulerConfig

_NUMBER = re.compile(r"[0-9]{1,10}")
_NESTED: dict[str, type[Any]] = {"attention_dp_config": AttentionDPConfig, "routing": RoutingConfig}
ALIASES = {
    "block_size": "tokens_per_block",
    "max_model_len": "max_seq_len",
    "max_num_batched_tokens": "max_num_tokens",
    "max_num_seqs": "max_batch_size",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """``model``: a directory, a GGUF file, or None for the packaged default.

    ``attention`` is ``"model"``, the model's own, or ``"window:W"``, ``"window:W:E"``, ``"window:W:E:S"``: every layer
    but each E-th (default 3) attends to W positions and S first ones. ``kernel`` chooses the attention code.
    """

    model: str | None = None
    dtype: str = "float32"
    attention: str = "model"
    kernel: str = "auto"
    prepack: bool = False

    def __post_init__(self) -> None:
        for name in ("dtype", "attention", "kernel"):
            check_text(name, getattr(self, name))
        if self.model is not None:
            check_text("model", self.model)
        check_bool("prepack", self.prepack)
        self.window()

    def window(self) -> tuple[int, int, int] | None:
        """Return ``(window, every, sinks)`` of ``attention``; None for the model's own."""
        if self.attention == "model":
            return None
        word, *numbers = self.attention.split(":")
        if word != "window" or not 1 <= len(numbers) <= 3 or not all(_NUMBER.fullmatch(n) for n in numbers):
            raise ConfigError(
                f"attention={shown(self.attention)} must be 'model', 'window:W', 'window:W:E' or 'window:W:E:S'",
                field="attention",
                value=self.attention,
            )
        window, every, sinks = (*map(int, numbers), *(3, 0)[len(numbers) - 1 :])
        check_integer("attention window", window, 1, 2**31 - 1)
        check_integer("attention every", every, 1, 2**31 - 1)
        check_integer("attention sinks", sinks, 0, 2**31 - 1)
        return window, every, sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What the cache is built with, besides the model's layers. ``pool_slots`` overrides ``device_bytes``."""

    device_bytes: int = 1 << 30
    pool_slots: tuple[int, ...] | None = None
    max_seq_len: int = 4096
    tokens_per_block: int = 32
    enable_prefix_caching: bool = True
    enable_partial_reuse: bool = True
    swa_scratch_reuse: bool = True
    separate_pools: bool = False
    publish: str = "full_blocks"
    window_checkpoints: str = "every_chunk"
    reuse_unit_tokens: int | None = None
    max_util_for_resume: float = 0.95
    eviction_policy: str = "lru"

    def __post_init__(self) -> None:
        for name in ("device_bytes", "max_seq_len", "tokens_per_block"):
            check_integer(name, getattr(self, name), 1, 2**60)
        for name in ("enable_prefix_caching", "enable_partial_reuse", "swa_scratch_reuse", "separate_pools"):
            check_bool(name, getattr(self, name))
        check_real("max_util_for_resume", self.max_util_for_resume, 0.0, 1.0, is_low_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """``overlap``: plan and reserve the next step while one computes. ``seed``: for requests without their own.

    ``deferral``: what becomes of a planned prefill that is held back; see ``tidegate.runtime.deferral``.
    """

    overlap: bool = False
    seed: int = 0
    deferral: DeferralName = "reserve_late"

    def __post_init__(self) -> None:
        check_bool("overlap", self.overlap)
        if self.deferral not in DEFERRALS:
            raise ConfigError(f"deferral={shown(self.deferral)} must be one of {list(DEFERRALS)}", field="deferral")
        check_integer("seed", self.seed, 0, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """``num_speculative_tokens``: the most drafts per sequence and step, 0 for none.

    Without another source, drafts are what followed the last ``prompt_lookup_min`` to ``prompt_lookup_max`` tokens of
    a sequence when they occurred in it before. Models with state layers take none.
    """

    num_speculative_tokens: int = 0
    prompt_lookup_max: int = 5
    prompt_lookup_min: int = 3

    def __post_init__(self) -> None:
        check_integer("num_speculative_tokens", self.num_speculative_tokens, 0, 256)
        check_integer("prompt_lookup_max", self.prompt_lookup_max, 1, 64)
        check_integer("prompt_lookup_min", self.prompt_lookup_min, 1, self.prompt_lookup_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """All sections. The last two matter where several ranks step together."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    speculation: SpeculativeConfig = field(default_factory=SpeculativeConfig)
    attention_dp_config: AttentionDPConfig = field(default_factory=AttentionDPConfig)
    routing: RoutingConfig = field(default_factory=RoutingConfig)

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> RuntimeConfig:
        """Sort flat settings into their sections; vLLM's names are accepted. Unknown names raise ``ConfigError``."""
        sections: dict[str, type[Any]] = {
            "model": ModelConfig,
            "cache": CacheConfig,
            "scheduler": SchedulerConfig,
            "loop": LoopConfig,
            "speculation": SpeculativeConfig,
        }
        place = {f.name: section for section, kind in sections.items() for f in fields(kind)}
        values: dict[str, dict[str, object]] = {section: {} for section in sections}
        whole: dict[str, Any] = {}
        for name, value in settings.items():
            if name in _NESTED:
                whole[name] = _nested(name, value)
                continue
            canonical = ALIASES.get(name, name)
            if canonical not in place:
                raise ConfigError(
                    f"{name}={shown(value)}: no such setting; legal are {sorted([*place, *ALIASES, *_NESTED])}",
                    field=name,
                )
            of_section = values[place[canonical]]
            if canonical in of_section:
                raise ConfigError(f"{name}={shown(value)}: {canonical} is given twice, under two names", field=name)
            of_section[canonical] = value
        return cls(**{section: kind(**values[section]) for section, kind in sections.items()}, **whole)


def _nested(name: str, value: object) -> object:
    """Return a section that users write as a mapping of its own, or as the object itself."""
    kind = _NESTED[name]
    return value if isinstance(value, kind) else kind.from_mapping(value)
