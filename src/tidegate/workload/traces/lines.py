"""Lines of trace files, read as what anybody may have written."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tidegate.base import ConfigError, shown

_LONGEST_LINE = 1 << 26
_MOST_SECONDS = 1e10


@dataclass(frozen=True, slots=True)
class Line:
    """One record and where it stands. Every error begins with file and line and names the field."""

    path: Path
    number: int
    record: Mapping[str, Any]

    def fail(self, field: str, value: object, legal: str) -> NoReturn:
        """Raise ``ConfigError`` for a field."""
        raise ConfigError(f"{self.path}:{self.number}: {field}={shown(value)} must be {legal}", field=field)

    def get(self, field: str) -> Any:
        """Return a field that must be there."""
        value = self.record.get(field)
        if value is None:
            raise ConfigError(f"{self.path}:{self.number}: {field} is missing", field=field)
        return value

    def integer(self, field: str, low: int, high: int = 1 << 24) -> int:
        """Return a whole number; the text of one is as good."""
        value = self.get(field)
        number = value
        if isinstance(value, str) and len(value) <= 20:
            try:
                number = float(value) if "." in value else int(value)
            except ValueError:
                number = None
        if isinstance(number, float) and math.isfinite(number) and number == int(number):
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            self.fail(field, value, f"a whole number from {low} to {high}")
        return number

    def seconds(self, field: str, scale: float = 1.0) -> float:
        """Return a time that is not negative, in seconds, of a field that counts in ``scale`` seconds."""
        value = self.get(field)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0.0 <= number * scale <= _MOST_SECONDS:
            self.fail(field, value, "a time that is not negative")
        return number * scale

    def integers(self, field: str, high: int = 1 << 62) -> list[int]:
        """Return a list of whole numbers that are not negative."""
        value = self.get(field)
        if not isinstance(value, list) or not all(type(v) is int and 0 <= v <= high for v in value):
            self.fail(field, value, f"a list of whole numbers from 0 to {high}")
        return list(value)


def json_lines(path: Path) -> Iterator[Line]:
    """Yield the objects of a JSONL file, which may be gzipped; empty lines are skipped."""
    for number, text in _texts(path):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}", field="line") from None
        if not isinstance(record, dict):
            raise ConfigError(f"{path}:{number}: {shown(record)} must be a JSON object", field="line")
        yield Line(path, number, record)


def csv_lines(path: Path, columns: tuple[str, ...]) -> Iterator[Line]:
    """Yield the rows of a CSV file whose header has at least ``columns``."""
    texts = _texts(path)
    header = next(texts, (1, ""))[1].lstrip("\ufeff")
    names = [name.strip() for name in next(csv.reader([header]), [])]
    for column in columns:
        if column not in names:
            raise ConfigError(f"{path}:1: column {column!r} is missing; the header has {shown(names)}", field=column)
    for number, text in texts:
        if not text.strip():
            continue
        try:
            values = next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise ConfigError(f"{path}:{number}: not CSV: {error}", field="line") from None
        if len(values) != len(names):
            raise ConfigError(
                f"{path}:{number}: {len(values)} values must be {len(names)}, as in the header", field="line"
            )
        yield Line(path, number, dict(zip(names, values, strict=True)))


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while raw := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(raw) > _LONGEST_LINE:
                    raise ConfigError(f"{path}:{number}: a line must have at most {_LONGEST_LINE} bytes", field="line")
                try:
                    yield number, raw.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise ConfigError(f"{path}:{number}: not UTF-8", field="line") from None
    except (OSError, EOFError, zlib.error) as error:
        where = f"{path}:{number + 1}" if number else str(path)
        raise ConfigError(f"{where}: cannot be read: {error}", field="trace") from None
