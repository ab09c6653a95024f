"""Measured kernel times of one model on one accelerator, as CSV files, and what lies between the measured points."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.base import ConfigError
from tidegate.engine.simulated.fleet_step import Float64Array

_MOST_ROWS = 1 << 20
_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Values on a full grid; between points they are interpolated linearly along each axis, beyond the ends too."""

    axes: tuple[Float64Array, ...]
    values: Float64Array

    def at(self, *point: float) -> float:
        """Return the value at a point, never below 0."""
        corners = self.values
        for axis, x in zip(self.axes, point, strict=True):
            if len(axis) == 1:
                corners = corners[0]
                continue
            place = min(max(int(np.searchsorted(axis, x, side="right")) - 1, 0), len(axis) - 2)
            share = (max(x, float(axis[0])) - axis[place]) / (axis[place + 1] - axis[place])
            corners = corners[place] * (1.0 - share) + corners[place + 1] * share
        return max(float(corners), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class KernelTables:
    """Microseconds of kernels: ``dense[layer]`` by tokens, ``per_sequence[layer]`` by sequences, attention by shape.

    ``prefill`` is over (chunk, keys before it), ``decode`` over (sequences, keys of each), ``mixed`` over both.
    """

    dense: dict[str, Grid]
    per_sequence: dict[str, Grid]
    prefill: Grid
    decode: Grid
    mixed: Grid

    @classmethod
    def read(cls, directory: str | Path) -> KernelTables:
        """Read ``dense.csv``, ``per_sequence.csv`` and ``attention.csv``. Raises ``ConfigError`` with file and line."""
        where = Path(directory)
        attention = {tuple(row): time for _, row, time in _rows(where / "attention.csv", _ATTENTION, has_layer=False)}
        return cls(
            dense=_by_layer(where / "dense.csv", "tokens"),
            per_sequence=_by_layer(where / "per_sequence.csv", "sequences"),
            prefill=_grid({key[:2]: time for key, time in attention.items() if key[0] and not key[2]}, where),
            decode=_grid({key[2:]: time for key, time in attention.items() if key[2] and not key[0]}, where),
            mixed=_grid({key: time for key, time in attention.items() if key[0] and key[2]}, where),
        )


def _by_layer(path: Path, column: str) -> dict[str, Grid]:
    times: dict[str, dict[tuple[float, ...], float]] = {}
    for layer, row, time in _rows(path, (column,), has_layer=True):
        times.setdefault(layer, {})[tuple(row)] = time
    return {layer: _grid(points, path) for layer, points in times.items()}


def _rows(path: Path, columns: Sequence[str], *, has_layer: bool) -> list[tuple[str, list[float], float]]:
    names = (*(("layer",) if has_layer else ()), *columns, "time_us")
    found = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if tuple(header) != names:
                raise ConfigError(f"{path}:1: the header {header} must be {list(names)}", field="cost.tables")
            for row in itertools.islice(reader, _MOST_ROWS):
                if len(row) != len(names):
                    raise ConfigError(
                        f"{path}:{reader.line_num}: {len(row)} values must be {len(names)}", field="cost.tables"
                    )
                cells = dict(zip(names, row, strict=True))
                numbers = [_number(path, reader.line_num, name, cells[name]) for name in (*columns, "time_us")]
                found.append((cells.get("layer", ""), numbers[:-1], numbers[-1]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", field="cost.tables") from None
    return found


def _number(path: Path, line: int, name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= 1e12:
        raise ConfigError(f"{path}:{line}: {name}={text!r} must be a number from 0 on", field=name)
    return number


def _grid(points: dict[tuple[float, ...], float], path: Path) -> Grid:
    """Return the largest full grid found by leaving out, again and again, the coordinate with the largest gap."""
    if not points:
        raise ConfigError(f"{path}: no measured times of one kind", field="cost.tables")
    axes = [sorted({point[i] for point in points}) for i in range(len(next(iter(points))))]
    while True:
        known = np.array([point in points for point in itertools.product(*axes)]).reshape([len(a) for a in axes])
        if known.all():
            break
        gaps = []
        for i, axis in enumerate(axes):
            missing = 1.0 - known.mean(axis=tuple(j for j in range(len(axes)) if j != i))
            gaps.append((float(missing.max()), len(axis), i, int(missing.argmax())))
        _, _, i, place = max(gaps)
        del axes[i][place]
    values = np.array([points[point] for point in itertools.product(*axes)])
    return Grid(tuple(np.array(axis) for axis in axes), values.reshape([len(axis) for axis in axes]))
