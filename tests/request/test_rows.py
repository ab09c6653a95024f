"""A dataclass travels with every field it has, or is refused before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pytest

from tests.request.message_strategies import same
from tidegate.base import ConfigError, Int32Array, InternalError
from tidegate.request.rows import row_shape
from tidegate.request.wire import TokenReader, pack, unpack


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    wait_s: float
    share: float


@dataclass(frozen=True)
class Outer:
    request_id: str
    ids: Int32Array
    number: int
    flag: bool
    colour: Colour
    inner: Inner
    maybe: Inner | None
    pairs: tuple[tuple[int, str], ...]
    more_ids: Int32Array | None = None


@dataclass(frozen=True)
class Untravelled:
    anything: dict[str, int]


OUTER = Outer(
    "r",
    np.array([1, 2], dtype=np.int32),
    5,
    True,
    Colour.RED,
    Inner(1, -float("inf")),
    Inner(0.1, 0.2),
    ((1, "a"), (2, "")),
    np.array([3], dtype=np.int32),
)
SHAPE = row_shape(Outer)


def travelled(value: Outer) -> Outer:
    ids: list[Int32Array] = []
    header, reader = unpack(pack({"row": SHAPE.write("row", value, ids)}, ids))
    assert isinstance(header, dict)
    arrived = SHAPE.read("row", header["row"], reader)
    reader.close()
    return arrived


def changed(**values: object) -> Outer:
    return Outer(**{**vars(OUTER), **values})


@pytest.mark.parametrize("value", [OUTER, changed(maybe=None, pairs=(), more_ids=None, flag=False)])
def test_every_field_arrives_as_it_left(value: Outer) -> None:
    assert same(travelled(value), value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("request_id", "", "row.request_id='' must be a non-empty string"),
        ("ids", [1], "row.ids must be a one-dimensional int32 array"),
        ("number", np.int64(5), "row.number=.* must be an integer"),
        ("number", -1, "row.number=-1 must be an integer"),
        ("flag", 1, "row.flag=1 must be True or False"),
        ("colour", "red", "row.colour='red' must be Colour"),
        ("inner", None, "row.inner=None must be Inner"),
        ("inner", Inner(float("inf"), 0.0), r"row.inner.wait_s=inf must be a number"),
        ("inner", Inner(0.0, float("nan")), r"row.inner.share=nan must be a float, and not NaN"),
        ("inner", Inner(0.0, 1), r"row.inner.share=1 must be a float"),
        ("pairs", [(1, "a")], r"row.pairs=.* must be tuple"),
        ("pairs", ((1, "a", 2),), r"row.pairs\[0\]=.* must be a list of 2"),
    ],
)
def test_wrong_value_is_not_written(name: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SHAPE.write("row", changed(**{name: value}), [])


@pytest.mark.parametrize("row", [None, {}, [], ["r"] * 8, ["r"] * 10, "r" * 9])
def test_row_of_another_length_or_type_is_not_read(row: object) -> None:
    with pytest.raises(ConfigError, match=r"row=.* must be a list of 9"):
        SHAPE.read("row", row, TokenReader(np.zeros(0, dtype=np.int32)))


def test_type_that_cannot_travel_is_refused_when_the_shape_is_made() -> None:
    with pytest.raises(InternalError, match="anything of type dict"):
        row_shape(Untravelled)
