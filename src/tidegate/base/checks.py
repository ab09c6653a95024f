"""One form for every refusal of a value: field, value, and what is legal."""

from __future__ import annotations

from tidegate.base.errors import ConfigError

_SHOWN = 200
"""Characters of a value that an error quotes."""


def shown(value: object) -> str:
    """Return a value as an error quotes it: one line, not endless, and never an error of its own."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, or somebody's own class
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def check_real(field: str, value: object, low: float, high: float, *, is_low_open: bool = False) -> None:
    """Raise ``ConfigError`` unless ``value`` is a finite number in range; bool is no number here."""
    is_number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not is_number or not low <= value <= high or (is_low_open and value == low):  # type: ignore[operator]  # a number
        legal = f"a number in {'(' if is_low_open else '['}{low:g}, {high:g}]"
        raise ConfigError(f"{field}={shown(value)} must be {legal}", field=field, value=value)


def check_integer(field: str, value: object, low: int, high: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is an integer in ``[low, high]``; bool is no integer here."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{field}={shown(value)} must be an integer in [{low}, {high}]", field=field, value=value)


def check_text(field: str, value: object) -> None:
    """Raise ``ConfigError`` unless ``value`` is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{field}={shown(value)} must be a non-empty string", field=field, value=value)


def check_bool(field: str, value: object) -> None:
    """Raise ``ConfigError`` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{field}={shown(value)} must be True or False", field=field, value=value)


def check_tuple(field: str, value: object, kind: type) -> None:
    """Raise ``ConfigError`` unless ``value`` is a tuple of ``kind``."""
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        raise ConfigError(f"{field}={shown(value)} must be a tuple of {kind.__name__}", field=field, value=value)
