"""What may come in through the door: rows, positions and tokens, checked in a few array operations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int32Array, Int64Array


class RowDoor:
    """Lets through rows of the table that are all different."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._mark = np.zeros(num_rows, np.bool_)
        # A step's rows come in twice, to be priced and to be settled, and most often again in the next step; as nobody
        # can write to them, one look is enough.
        self._last = self._before = np.empty(0, np.int64)
        self._content = b""

    def rows(self, given: npt.ArrayLike) -> Int64Array:
        """Return rows as a read-only int64 ``[n]``; ``ConfigError`` unless they are distinct and in range."""
        if given is self._last or given is self._before:
            return given
        given = integers(given, "rows")
        content = given.tobytes()
        if content == self._content:
            return self._last
        rows = given.copy()
        mark = self._mark
        try:
            mark[rows] = True
            is_good = np.count_nonzero(mark) == len(rows) and np.count_nonzero(rows < 0) == 0
        except IndexError:
            is_good = False
        mark.fill(False)
        if not is_good:
            raise ConfigError(
                f"rows={_few(rows)} must be distinct integers in [0, {self._num_rows - 1}]", field="rows", value=rows
            )
        rows.setflags(write=False)
        rows = rows[:]  # of a view nobody can take that back
        self._before, self._last, self._content = self._last, rows, content
        return rows


def integers(given: npt.ArrayLike, field: str, count: int | None = None) -> Int64Array:
    """Return integers as int64 ``[n]``, the array itself if it is one; ``count`` is how many there must be."""
    if type(given) is np.ndarray and given.dtype == np.int64 and given.ndim == 1:
        array: Int64Array = given
    else:
        array = _converted(given, field)
    if count is not None and len(array) != count:
        raise ConfigError(f"{field}: {len(array)} numbers for {count} rows", field=field)
    return array


def position(value: object, field: str) -> int:
    """Return one position as an int; bool is no position."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f"{field}={value!r} must be an integer", field=field, value=value)
    return int(value)


def token_columns(given: npt.ArrayLike, count: int) -> Int32Array:
    """Return newly known tokens of ``count`` rows as int32 ``[n]`` or ``[n, m]``."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"tokens cannot be read as an array: {error}", field="tokens") from None
    if array.ndim not in (1, 2) or len(array) != count or (array.size and array.dtype.kind not in "iu"):
        raise ConfigError(
            f"tokens must be integers, one or a list of them for each of {count} rows; "
            f"got {array.dtype} of shape {array.shape}",
            field="tokens",
        )
    if array.dtype == np.int32:
        return array
    tokens = array.astype(np.int32)
    if np.count_nonzero(tokens != array):
        raise ConfigError("tokens must be below 2^31, -1 where there is none", field="tokens")
    return tokens


def _converted(given: npt.ArrayLike, field: str) -> Int64Array:
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{field} cannot be read as an array: {error}", field=field) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ConfigError(f"{field} must be a list of integers, got {array.dtype} of shape {array.shape}", field=field)
    converted = array.astype(np.int64)
    if np.count_nonzero(converted != array):
        raise ConfigError(f"{field} must be below 2^63", field=field)
    return converted


def _few(rows: Int64Array) -> str:
    shown = rows[:8].tolist()
    return str(shown) if len(rows) <= len(shown) else f"{str(shown)[:-1]}, … {len(rows)} in all]"
