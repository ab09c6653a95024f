"""Reading of nested settings: every error names the whole path, the value and what is legal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.base import ConfigError, check_bool, check_integer, check_real, check_text, shown


class Fields:
    """One mapping of settings at ``path``; what nobody asked for is an error in ``done``."""

    def __init__(self, path: str, mapping: object) -> None:
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"{path}={shown(mapping)} must be a mapping", field=path)
        self.path = path
        self._values: Mapping[str, Any] = mapping
        self._asked: list[str] = []

    def name(self, key: str) -> str:
        """Return the whole path of a field."""
        return f"{self.path}.{key}"

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as it was given."""
        self._asked.append(key)
        value = self._values.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None, *, low: int = 0, high: int = 2**31 - 1) -> int:
        """Return a whole number from ``low`` to ``high``; without a default it must be there."""
        value = self._needed(key, default)
        check_integer(self.name(key), value, low, high)
        return int(value)

    def real(self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12) -> float:
        """Return a finite number from ``low`` to ``high``; without a default it must be there."""
        value = self._needed(key, default)
        check_real(self.name(key), value, low, high)
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0."""
        value = self._needed(key, default)
        check_real(self.name(key), value, 0.0, 1e12, is_low_open=True)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty."""
        value = self._needed(key, default)
        check_text(self.name(key), value)
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return True or False."""
        value = self.get(key, default)
        check_bool(self.name(key), value)
        return bool(value)

    def choice(self, key: str, legal: Sequence[str], default: str | None = None) -> str:
        """Return one of the legal words."""
        value = self._needed(key, default)
        if value not in legal:
            raise ConfigError(f"{self.name(key)}={shown(value)} must be one of {list(legal)}", field=self.name(key))
        return str(value)

    def done(self) -> None:
        """Raise ``ConfigError`` for a field that was given and never asked for."""
        for key, value in self._values.items():
            if key not in self._asked:
                raise ConfigError(
                    f"{self.path}.{key}={shown(value)} is unknown; legal are {sorted(set(self._asked))}",
                    field=f"{self.path}.{key}",
                )

    def _needed(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ConfigError(f"{self.name(key)} is missing", field=self.name(key))
        return value
