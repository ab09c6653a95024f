"""What to simulate, as data that a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from tidegate.base import ConfigError, check_integer, check_real, check_text, shown

_KINDS = ("roofline", "tables", "linear")


def _from_mapping(kind: type[Any], name: str, mapping: object) -> Any:
    if isinstance(mapping, kind):
        return mapping
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{name}={shown(mapping)} must be a mapping", field=name)
    legal = [f.name for f in fields(kind)]
    for key, value in mapping.items():
        if key not in legal:
            raise ConfigError(f"{name}.{key}={shown(value)} is unknown; legal are {legal}", field=f"{name}.{key}")
    return kind(**mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSpec:
    """How long steps take: ``kind`` "roofline" of a ``hardware`` preset, measured "tables", or "linear".

    ``tables`` is a directory of kernel times. A linear step takes ``fixed_ms`` and ``per_token_us`` for each token of
    the busiest rank. ``host_ms`` per step replaces the preset's overhead.
    """

    kind: Literal["roofline", "tables", "linear"] = "roofline"
    hardware: str = "h200"
    tensor_parallel: int = 1
    tables: str | None = None
    fixed_ms: float = 30.0
    per_token_us: float = 100.0
    host_ms: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(f"cost.kind={shown(self.kind)} must be one of {list(_KINDS)}", field="cost.kind")
        check_text("cost.hardware", self.hardware)
        check_integer("cost.tensor_parallel", self.tensor_parallel, 1, 1024)
        if (self.kind == "tables") != (self.tables is not None):
            raise ConfigError(
                f"cost.tables={shown(self.tables)} must name a directory with cost.kind='tables', and only then",
                field="cost.tables",
            )
        for name in ("fixed_ms", "per_token_us", "host_ms"):
            if getattr(self, name) is not None:
                check_real(f"cost.{name}", getattr(self, name), 0.0, 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSpec:
    """One run. ``model`` is a preset's name or a Hugging Face ``config.json``; ``workload`` as ``build_workload``
    reads it; ``settings`` are the runtime's, by name. ``num_ranks`` of attention data parallelism step together.

    The cache's size is a setting (``device_bytes``, ``pool_slots``); without one it is what the hardware has left.
    """

    model: str = "llama-3.1-8b"
    num_ranks: int = 1
    cost: CostSpec = field(default_factory=CostSpec)
    workload: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        check_text("model", self.model)
        check_integer("num_ranks", self.num_ranks, 1, 4096)
        check_integer("seed", self.seed, 0, 2**31 - 1)
        for name in ("workload", "settings"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name}={shown(getattr(self, name))} must be a mapping", field=name)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SimSpec:
        """Read what a file holds. Unknown or illegal fields raise ``ConfigError``."""
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"a simulation's settings must be a mapping, not {shown(mapping)}", field="spec")
        values = dict(mapping)
        values["cost"] = _from_mapping(CostSpec, "cost", values.get("cost", {}))
        spec = _from_mapping(cls, "spec", values)
        assert isinstance(spec, cls)
        return spec
