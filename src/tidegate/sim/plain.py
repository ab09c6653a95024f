"""Settings that a file holds, copied into plain values: what can be written down again, and ends somewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tidegate.base import ConfigError, shown

_MOST_VALUES = 200_000
_MOST_DEPTH = 32


def plain_mapping(field: str, value: object) -> dict[str, Any]:
    """Return a deep copy of a mapping of names. Raises ``ConfigError`` naming the path of what no JSON file can hold.

    Anything that refers to itself, or that unfolds to more values than a person would write, is refused too.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field}={shown(value)} must be a mapping of settings", field=field)
    copied = plain_value(field, value)
    assert isinstance(copied, dict)
    return copied


def plain_value(field: str, value: object) -> Any:
    """Return a deep copy of a value; the same errors."""
    return _Copy().of(field, value, 0)


class _Copy:
    def __init__(self) -> None:
        self._count = 0

    def of(self, path: str, value: object, depth: int) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES or depth > _MOST_DEPTH:
            raise ConfigError(
                f"{path}: settings must hold at most {_MOST_VALUES} values, {_MOST_DEPTH} deep", field=path
            )
        if isinstance(value, Mapping):
            for name in value:
                if not isinstance(name, str) or not name:
                    raise ConfigError(f"{path}: the name {shown(name)} must be a non-empty string", field=path)
            return {name: self.of(f"{path}.{name}", item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(f"{path}.{place}", item, depth + 1) for place, item in enumerate(value)]
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise ConfigError(
            f"{path}={shown(value)} must be a finite number, a string, true, false, null, or a list or mapping of such",
            field=path,
        )
