"""One run, or many that differ in chosen settings: every cell of a grid, and what became of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from tidegate.base import CapacityError, ConfigError, TidegateError, shown
from tidegate.sim.executors import Executor, Lost
from tidegate.sim.plain import plain_mapping, plain_value
from tidegate.sim.result import SimResult
from tidegate.sim.spec import CostSpec, SimSpec

MOST_CELLS = 10_000
_MOST_TEXT = 40
_LEGAL = {"": [f.name for f in fields(SimSpec)], "cost": [f.name for f in fields(CostSpec)]}

Simulate = Callable[[SimSpec], SimResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Settings that change together: ``rows[i][j]`` is the i-th value of ``paths[j]``."""

    paths: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a sweep: its place, the settings in which it differs by dotted path, and all of its settings."""

    index: int
    values: tuple[tuple[str, Any], ...]
    mapping: dict[str, Any]

    @property
    def name(self) -> str:
        """Every swept setting with its value; ``run`` when nothing is swept."""
        return ", ".join(f"{path}={value_text(value)}" for path, value in self.values) or "run"

    @property
    def label(self) -> str:
        """The same with the last word of each path, for figures."""
        return ", ".join(f"{path.rpartition('.')[2]}={value_text(value)}" for path, value in self.values) or "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a cell has no result. ``is_broken``: neither its settings nor a shortage explain it."""

    kind: str
    message: str
    is_broken: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What became of a cell: a result or a failure, never both."""

    cell: Cell
    result: SimResult | None = None
    failure: Failure | None = None

    def record(self) -> dict[str, Any]:
        """Return what a file says of it."""
        record: dict[str, Any] = {
            "index": self.cell.index,
            "name": self.cell.name,
            "values": dict(self.cell.values),
            "spec": self.cell.mapping if self.result is None else self.result.spec,
        }
        if self.failure is not None:
            record["failure"] = {"kind": self.failure.kind, "message": self.failure.message}
        if self.result is not None:
            record |= {"summary": self.result.summary(), "notes": list(self.result.notes)}
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """``base`` settings of ``SimSpec``, and axes whose product is run, the last one changing fastest."""

    base: Mapping[str, Any]
    axes: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.base, Mapping):
            raise ConfigError(f"base={shown(self.base)} must be a mapping of settings", field="base")
        for name in self.base:
            _check_path(str(name))
        paths = [path for axis in self.axes for path in axis.paths]
        for path in paths:
            _check_path(path)
        for one, other in itertools.combinations(paths, 2):
            if one == other or one.startswith(f"{other}.") or other.startswith(f"{one}."):
                raise ConfigError(f"{one} and {other}: two axes must not set the same setting", field=other)
        count = 1
        for axis in self.axes:
            count *= len(axis.rows)
        if count > MOST_CELLS:
            raise ConfigError(f"axes: {count} runs must be at most {MOST_CELLS}", field="axes")

    @classmethod
    def from_mapping(cls, mapping: object) -> Sweep:
        """Read what a file holds: ``base``, ``axes`` and ``zip``, or the settings of one run.

        ``axes`` gives each path its values; ``zip`` is a list of such mappings, in each of which the lists are equally
        long and go along together. Errors name the path.
        """
        whole = plain_mapping("sweep", mapping)
        if not whole.keys() & {"base", "axes", "zip"}:
            return cls(base=whole)
        unknown = sorted(whole.keys() - {"base", "axes", "zip"})
        if unknown:
            raise ConfigError(f"{unknown[0]}: a sweep has only 'base', 'axes' and 'zip'", field=unknown[0])
        axes = [
            Axis(paths=(path,), rows=tuple((value,) for value in _values(path, values)))
            for path, values in plain_mapping("axes", whole.get("axes") or {}).items()
        ]
        zips = whole.get("zip") or []
        if not isinstance(zips, list):
            raise ConfigError(f"zip={shown(zips)} must be a list of mappings", field="zip")
        axes += [_zipped(plain_mapping(f"zip.{place}", entry)) for place, entry in enumerate(zips)]
        return cls(base=plain_mapping("base", whole.get("base") or {}), axes=tuple(axes))

    def with_values(self, values: Mapping[str, Any]) -> Sweep:
        """Return the sweep with settings of the base replaced, by dotted path. A swept one is refused."""
        base = plain_mapping("base", self.base)
        swept = [path for axis in self.axes for path in axis.paths]
        for path, value in values.items():
            _check_path(path)
            for other in swept:
                if path == other or path.startswith(f"{other}."):
                    raise ConfigError(f"{path}={shown(value)}: the sweep sets {other} itself", field=path)
            set_path(base, path, plain_value(path, value))
        return Sweep(base=base, axes=self.axes)

    def with_axis(self, path: str, values: Sequence[Any]) -> Sweep:
        """Return the sweep with one more axis, which stands for any that it had on that path."""
        rows = tuple((value,) for value in _values(path, list(values)))
        others = tuple(axis for axis in self.axes if axis.paths != (path,))
        return Sweep(base=self.base, axes=(*others, Axis(paths=(path,), rows=rows)))

    def cells(self) -> tuple[Cell, ...]:
        """Return every run in order. Raises ``ConfigError`` for a path that leads through something else."""
        cells = []
        for index, rows in enumerate(itertools.product(*(axis.rows for axis in self.axes))):
            values = tuple(
                (path, value)
                for axis, row in zip(self.axes, rows, strict=True)
                for path, value in zip(axis.paths, row, strict=True)
            )
            mapping = plain_mapping("base", self.base)
            for path, value in values:
                set_path(mapping, path, plain_value(path, value))
            cells.append(Cell(index=index, values=values, mapping=mapping))
        return tuple(cells)


def run_cell(cell: Cell, simulate: Simulate) -> Outcome:
    """Run one cell. What tidegate refuses, or cannot go on with, is a failure of this cell only."""
    try:
        return Outcome(cell=cell, result=simulate(SimSpec.from_mapping(cell.mapping)))
    except (TidegateError, MemoryError, OSError) as error:
        is_broken = not isinstance(error, ConfigError | CapacityError | OSError)
        failure = Failure(kind=type(error).__name__, message=str(error), is_broken=is_broken)
        return Outcome(cell=cell, failure=failure)


def run_sweep(
    cells: Sequence[Cell], simulate: Simulate, executor: Executor, on_done: Callable[[], None] = lambda: None
) -> Iterator[Outcome]:
    """Yield the outcome of every cell, in order. ``simulate`` must be importable where the executor computes."""
    for cell, outcome in zip(cells, executor.map(partial(run_cell, simulate=simulate), cells, on_done), strict=True):
        if isinstance(outcome, Lost):
            yield Outcome(cell=cell, failure=Failure(kind="Lost", message=outcome.message, is_broken=True))
        else:
            yield outcome


def set_path(mapping: dict[str, Any], path: str, value: Any) -> None:
    """Set what a dotted path leads to; missing mappings on the way are made. A number is a place in a list."""
    words = path.split(".")
    place: Any = mapping
    for depth, word in enumerate(words):
        is_last = depth == len(words) - 1
        if isinstance(place, dict):
            key: Any = word
            if not is_last and place.get(word) is None:
                place[word] = {}
        elif isinstance(place, list) and word.isdecimal() and int(word) < len(place):
            key = int(word)
        else:
            reached = ".".join(words[:depth])
            raise ConfigError(f"{path}: {reached}={shown(place)} has no {shown(word)} to set", field=path)
        if is_last:
            place[key] = value
        else:
            place = place[key]


def value_text(value: object) -> str:
    """Return a value as names and tables show it: as JSON, strings bare, not endless."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def _check_path(path: str) -> None:
    words = path.split(".")
    if not all(words):
        raise ConfigError(f"{shown(path)} must be a dotted path of settings", field=path)
    legal = _LEGAL[""]
    if words[0] not in legal:
        raise ConfigError(f"{path}: no such setting; a path must begin with one of {legal}", field=path)
    if words[0] == "cost" and len(words) > 1 and words[1] not in _LEGAL["cost"]:
        raise ConfigError(f"{path}: no such setting; legal are {['cost.' + w for w in _LEGAL['cost']]}", field=path)
    if len(words) > 1 and words[0] in ("model", "num_ranks", "seed"):
        raise ConfigError(f"{path}: {words[0]} has no settings of its own", field=path)


def _values(path: str, values: object) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"axes: {path}={shown(values)} must be a list of at least one value", field=path)
    texts = [json.dumps(plain_value(path, value), sort_keys=True) for value in values]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise ConfigError(f"axes: {path} has the value {shown(values[place])} twice", field=path)
    return values


def _zipped(entry: Mapping[str, Any]) -> Axis:
    columns: dict[str, list[Any]] = {}
    for path, values in entry.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"zip: {path}={shown(values)} must be a list of at least one value", field=path)
        columns[path] = values
    lengths = {path: len(values) for path, values in columns.items()}
    if not columns or len(set(lengths.values())) != 1:
        raise ConfigError(f"zip: lists must be equally long, not {lengths}", field=next(iter(entry), "zip"))
    return Axis(paths=tuple(columns), rows=tuple(zip(*columns.values(), strict=True)))
