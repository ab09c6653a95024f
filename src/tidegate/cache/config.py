"""Configuration of the cache, checked when made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from tidegate.base import ConfigError, LayerSpec, check_bool, check_integer, check_real, check_text, check_tuple, shown
from tidegate.cache.model_layers import ModelCacheOptions, layers_of_model
from tidegate.storage import check_policy

_CHECKPOINTS = re.compile(r"every_chunk|declared|every:[1-9][0-9]{0,9}")
_INT32 = (1 << 31) - 1
_MOST = {"max_seq_len": _INT32, "max_sequences": _INT32, "tokens_per_block": _INT32, "max_open_steps": 64}
_PUBLISH = ("full_blocks", "at_end", "declared", "none")
_ALIASES = {"block_size": "tokens_per_block", "max_num_seqs": "max_sequences", "max_model_len": "max_seq_len"}


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """Everything the cache is built from.

    ``device_bytes`` is the quota of the device tier; ``pool_slots`` gives the slots of each pool group outright
    instead. ``max_sequences`` bounds active sequences (rows), ``max_seq_len`` their tokens. ``max_chunk_tokens`` and
    ``typical_seq_len`` only shape how the quota is split between pool groups. ``max_rewind_len`` is how far below the
    end of a step settling may fall. ``reuse_unit_tokens`` coarsens the reuse granularity. ``eviction_policy`` is
    one of ``tidegate.storage.policy_names()``.
    """

    layers: tuple[LayerSpec, ...]
    max_sequences: int
    max_seq_len: int
    device_bytes: int | None = None
    pool_slots: tuple[int, ...] | None = None
    tokens_per_block: int = 32
    max_open_steps: int = 2
    max_rewind_len: int = 0
    max_chunk_tokens: int = 2048
    typical_seq_len: int | None = None
    swa_scratch_reuse: bool = True
    enable_prefix_caching: bool = True
    enable_partial_reuse: bool = True
    window_checkpoints: str = "every_chunk"
    publish: str = "full_blocks"
    reuse_unit_tokens: int | None = None
    max_util_for_resume: float = 0.95
    separate_pools: bool = False
    eviction_policy: str = "lru"

    def __post_init__(self) -> None:
        for name in ("max_sequences", "max_seq_len", "tokens_per_block", "max_open_steps", "max_chunk_tokens"):
            self._at_least(name, 1)
        self._at_least("max_rewind_len", 0)
        for name in ("device_bytes", "typical_seq_len", "reuse_unit_tokens"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        if (self.device_bytes is None) == (self.pool_slots is None):
            raise ConfigError(
                "device_bytes, pool_slots: give exactly one of them, the quota in bytes or explicit slots"
            )
        for name in ("swa_scratch_reuse", "enable_prefix_caching", "enable_partial_reuse", "separate_pools"):
            check_bool(name, getattr(self, name))
        check_real("max_util_for_resume", self.max_util_for_resume, 0.0, 1.0, is_low_open=True)
        self._check_tuples()
        check_text("window_checkpoints", self.window_checkpoints)
        if not _CHECKPOINTS.fullmatch(self.window_checkpoints):
            raise ConfigError(
                f"window_checkpoints={shown(self.window_checkpoints)} must be 'every_chunk', 'every:N' or 'declared'"
            )
        if self.publish not in _PUBLISH:
            raise ConfigError(f"publish={shown(self.publish)} must be one of {', '.join(_PUBLISH)}")
        check_policy("eviction_policy", self.eviction_policy)

    def _at_least(self, name: str, least: int) -> None:
        check_integer(name, getattr(self, name), least, _MOST.get(name, 1 << 60))

    def _check_tuples(self) -> None:
        check_tuple("layers", self.layers, LayerSpec)
        if self.pool_slots is not None:
            check_tuple("pool_slots", self.pool_slots, int)
            for slots in self.pool_slots:
                check_integer("pool_slots", slots, 0, _INT32)

    @property
    def publishes(self) -> bool:
        """Whether anything that is computed may be reused by others."""
        return self.enable_prefix_caching and self.publish != "none"

    @property
    def checkpoint_every(self) -> int:
        """Least distance between window checkpoints in tokens; 0 means declared points only."""
        if self.window_checkpoints == "declared":
            return 0
        return 1 if self.window_checkpoints == "every_chunk" else int(self.window_checkpoints.partition(":")[2])

    @classmethod
    def from_model_config(
        cls,
        model_config: Mapping[str, object] | object,
        *,
        options: ModelCacheOptions | None = None,
        **settings: object,
    ) -> KVCacheConfig:
        """Build the layers from a Hugging Face ``config.json`` (a mapping or config object) and the rest from settings.

        vLLM's names ``block_size``, ``max_num_seqs`` and ``max_model_len`` are accepted for ours.
        """
        if options is not None and not isinstance(options, ModelCacheOptions):
            raise ConfigError(f"options={shown(options)} must be ModelCacheOptions", field="options")
        layers = layers_of_model(model_config, options or ModelCacheOptions())
        known = {field.name for field in fields(cls)}
        values: dict[str, object] = {}
        for name, value in settings.items():
            field = _ALIASES.get(name, name)
            if field not in known or field == "layers":
                raise ConfigError(f"{name}: unknown setting; legal are {', '.join(sorted(known - {'layers'}))}")
            if field in values:
                raise ConfigError(f"{name}: given twice, also under its alias {field}")
            values[field] = value
        try:
            return cls(layers=layers, **values)  # type: ignore[arg-type]  # checked field by field in __post_init__
        except TypeError as error:
            raise ConfigError(f"settings: {error}; max_sequences and max_seq_len have no default") from error
