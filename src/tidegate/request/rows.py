"""How a dataclass travels: as a row of its values, in the order of its fields, each as its annotation says.

So a new field travels without a line here, and one of a type that cannot travel is refused at import. Rows instead of
objects, so that no name is sent; ids lie behind the header, and a row only says how many.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Generic, TypeVar, get_args, get_origin

import numpy as np

from tidegate.base import (
    ConfigError,
    Int32Array,
    InternalError,
    check_bool,
    check_integer,
    check_real,
    check_text,
    shown,
)
from tidegate.request.wire import TokenReader, check_float, check_ids, check_string, items

T = TypeVar("T")
_MAX_INT32 = 2**31 - 1
_FURTHEST_S = 1e18


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """How values of one type are written and read. Both refuse with ``ConfigError``, naming the place they are given.

    ``write`` appends token ids to a list and returns what the header says; ``read`` takes them from a reader.
    """

    write: Callable[[str, T, list[Int32Array]], object]
    read: Callable[[str, object, TokenReader], T]


def row_shape(kind: type[T]) -> Shape[T]:
    """Return the shape of a dataclass.

    Integers are counts or token ids, so int32 and not negative. A number in seconds, whose name ends in ``_s``, is
    finite and may be an integer; other numbers are floats and may be infinite. A ``request_id`` is not empty.
    """
    hints = typing.get_type_hints(kind)
    shapes = {each.name: _shape_of(each.name, hints[each.name]) for each in fields(kind)}  # type: ignore[arg-type]

    def write(where: str, value: T, ids: list[Int32Array]) -> list[object]:
        _check_kind(where, value, kind)
        return [shape.write(f"{where}.{name}", getattr(value, name), ids) for name, shape in shapes.items()]

    def read(where: str, value: object, ids: TokenReader) -> T:
        row = zip(shapes.items(), items(where, value, len(shapes)), strict=True)
        return kind(**{name: shape.read(f"{where}.{name}", each, ids) for (name, shape), each in row})

    return Shape(write, read)


def _shape_of(name: str, hint: object) -> Shape[object]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and types.NoneType in arguments:
        (other,) = (argument for argument in arguments if argument is not types.NoneType)
        return _optional(_shape_of(name, other))
    if origin is tuple and arguments[-1] is Ellipsis:
        return _sequence(_shape_of(name, arguments[0]))
    if origin is tuple:
        return _product([_shape_of(name, argument) for argument in arguments])
    if hint == Int32Array:
        return Shape(_write_ids, lambda where, value, ids: ids.take(where, value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return typing.cast("Shape[object]", row_shape(hint))
    check = _check_of(name, hint)
    return Shape(lambda where, value, _: check(where, value), lambda where, value, _: check(where, value))


def _optional(shape: Shape[object]) -> Shape[object]:
    return Shape(
        lambda where, value, ids: None if value is None else shape.write(where, value, ids),
        lambda where, value, ids: None if value is None else shape.read(where, value, ids),
    )


def _sequence(shape: Shape[object]) -> Shape[object]:
    def write(where: str, value: object, ids: list[Int32Array]) -> list[object]:
        return [shape.write(f"{where}[{i}]", each, ids) for i, each in enumerate(_members(where, value))]

    def read(where: str, value: object, ids: TokenReader) -> tuple[object, ...]:
        return tuple(shape.read(f"{where}[{i}]", each, ids) for i, each in enumerate(items(where, value)))

    return Shape(write, read)


def _product(shapes: list[Shape[object]]) -> Shape[object]:
    def write(where: str, value: object, ids: list[Int32Array]) -> list[object]:
        members = items(where, list(_members(where, value)), len(shapes))
        return [shape.write(where, each, ids) for shape, each in zip(shapes, members, strict=True)]

    def read(where: str, value: object, ids: TokenReader) -> tuple[object, ...]:
        members = items(where, value, len(shapes))
        return tuple(shape.read(where, each, ids) for shape, each in zip(shapes, members, strict=True))

    return Shape(write, read)


def _choice(kind: type[Enum]) -> Shape[object]:
    members = {member.value: member for member in kind}

    def write(where: str, value: object, ids: list[Int32Array]) -> object:
        _check_kind(where, value, kind)
        assert isinstance(value, kind)
        return value.value

    def read(where: str, value: object, ids: TokenReader) -> object:
        if not isinstance(value, str) or value not in members:
            raise ConfigError(f"{where}={shown(value)} must be one of {list(members)}", field=where)
        return members[value]

    return Shape(write, read)


def _write_ids(where: str, value: object, ids: list[Int32Array]) -> int:
    check_ids(where, value)
    assert isinstance(value, np.ndarray)
    ids.append(value)
    return len(value)


def _check_of(name: str, hint: object) -> Callable[[str, object], object]:
    if hint is float and name.endswith("_s"):
        return _seconds
    checks: dict[object, Callable[[str, object], object]] = {
        str: _name if name == "request_id" else check_string,
        int: _count,
        float: check_float,
        bool: _flag,
    }
    if hint not in checks:
        raise InternalError(f"{name} of type {hint} cannot travel between ranks: rows.py knows no shape for it")
    return checks[hint]


def _seconds(where: str, value: object) -> object:
    check_real(where, value, -_FURTHEST_S, _FURTHEST_S)
    return value


def _name(where: str, value: object) -> object:
    check_text(where, value)
    return value


def _count(where: str, value: object) -> object:
    check_integer(where, value, 0, _MAX_INT32)
    return value


def _flag(where: str, value: object) -> object:
    check_bool(where, value)
    return value


def _members(where: str, value: object) -> tuple[object, ...]:
    _check_kind(where, value, tuple)
    assert isinstance(value, tuple)
    return value


def _check_kind(where: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{where}={shown(value)} must be {kind.__name__}", field=where)
