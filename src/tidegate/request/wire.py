"""The frame that messages between ranks travel in: a JSON header and raw token ids, never pickle.

::

    "TGW1" | length of header, u32 | header, compact JSON in UTF-8 | token ids, int32, all little-endian

The header says how many ids belong to what, in the order in which they lie. Whatever arrives may be wrong in any way
and is then refused with ``ConfigError``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int32Array, check_integer, shown

_MAGIC = b"TGW1"
_PREFIX = struct.Struct("<4sI")
_IDS = np.dtype("<i4")
# Strings may hold halves of surrogate pairs, which a model's bytes or a caller's text can bring in.
_ERRORS = "surrogatepass"


def pack(header: dict[str, object], ids: Sequence[Int32Array]) -> bytes:
    """Return one frame."""
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"message cannot be written: {error}") from None
    encoded = text.encode("utf-8", _ERRORS)
    check_integer("length of header", len(encoded), 0, 2**32 - 1)
    return b"".join([_PREFIX.pack(_MAGIC, len(encoded)), encoded, *(array.astype(_IDS).tobytes() for array in ids)])


def unpack(frame: bytes) -> tuple[object, TokenReader]:
    """Return the header, of which only its syntax was checked, and a reader of the ids behind it."""
    _check_frame(frame)
    magic, length = _PREFIX.unpack_from(frame)
    if magic != _MAGIC:
        raise ConfigError(f"message begins with {magic!r}, must begin with {_MAGIC!r}")
    rest = len(frame) - _PREFIX.size
    if length > rest:
        raise ConfigError(f"message declares a header of {length} bytes, but only {rest} follow")
    if (rest - length) % _IDS.itemsize:
        raise ConfigError(f"message holds {rest - length} bytes of token ids, must be a multiple of {_IDS.itemsize}")
    end = _PREFIX.size + length
    ids = np.frombuffer(frame, _IDS, offset=end)
    return _parse(frame[_PREFIX.size : end]), TokenReader(ids)


class TokenReader:
    """Hands out the ids of a message in order."""

    def __init__(self, ids: npt.NDArray[np.int32]) -> None:
        self._ids = ids
        self._at = 0

    def take(self, field: str, count: object) -> Int32Array:
        """Return the next ``count`` ids as a read-only copy."""
        left = len(self._ids) - self._at
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= left:
            raise ConfigError(f"{field}={shown(count)} must be a number of the {left} token ids left", field=field)
        tokens = self._ids[self._at : self._at + count].astype(np.int32)
        check_ids(field, tokens)
        tokens.flags.writeable = False
        self._at += count
        return tokens

    def close(self) -> None:
        """Refuse a message that holds more ids than it declares."""
        if self._at != len(self._ids):
            raise ConfigError(f"message holds {len(self._ids)} token ids, but its header declares {self._at}")


def check_ids(field: str, tokens: object) -> None:
    """Raise ``ConfigError`` unless ``tokens`` are token ids: one-dimensional int32, none negative."""
    if not isinstance(tokens, np.ndarray) or tokens.dtype != np.int32 or tokens.ndim != 1:
        raise ConfigError(f"{field} must be a one-dimensional int32 array", field=field)
    if len(tokens) and tokens.min() < 0:
        at = int(np.argmax(tokens < 0))
        raise ConfigError(f"{field}[{at}]={int(tokens[at])} must be at least 0", field=field, value=int(tokens[at]))


def check_string(field: str, value: object) -> str:
    """Return ``value`` if it is a string, which may be empty."""
    if not isinstance(value, str):
        raise ConfigError(f"{field}={shown(value)} must be a string", field=field, value=value)
    return value


def check_float(field: str, value: object) -> float:
    """Return ``value`` if it is a float and a number; infinities are."""
    if not isinstance(value, float) or math.isnan(value):
        raise ConfigError(f"{field}={shown(value)} must be a float, and not NaN", field=field, value=value)
    return value


def items(field: str, value: object, length: int | None = None) -> list[object]:
    """Return ``value`` if it is a JSON list, of ``length`` items where one is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        legal = "a list" if length is None else f"a list of {length}"
        raise ConfigError(f"{field}={shown(value)} must be {legal}", field=field)
    return value


def members(field: str, value: object, names: Sequence[str]) -> list[object]:
    """Return the members of a JSON object in the order of ``names``, which must be exactly those it has."""
    if not isinstance(value, dict) or value.keys() != set(names):
        has = f"has {shown(sorted(value))}" if isinstance(value, dict) else f"is {shown(value)}"
        raise ConfigError(f"{field} {has}, must have exactly {list(names)}", field=field)
    return [value[name] for name in names]


def _parse(encoded: bytes) -> object:
    try:
        header: object = json.loads(
            encoded.decode("utf-8", _ERRORS), object_pairs_hook=_distinct, parse_constant=_constant
        )
    except RecursionError:
        raise ConfigError("message header is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or an integer of too many digits
        raise ConfigError(f"message header is not JSON: {shown(str(error))}") from None
    return header


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ConfigError(f"message header names a member twice: {shown([name for name, _ in pairs])}")
    return found


def _constant(name: str) -> float:
    if name == "NaN":
        raise ConfigError("message header holds NaN, must hold numbers")
    return float(name)


def _check_frame(frame: object) -> None:
    if not isinstance(frame, bytes):
        raise ConfigError(f"message of type {type(frame).__name__} must be bytes")
    if len(frame) < _PREFIX.size:
        raise ConfigError(f"message of {len(frame)} bytes is too short: it must begin with {_PREFIX.size}")
