"""Lengths in tokens, drawn from a distribution or a table."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tidegate.base import ConfigError, Int64Array, check_integer, check_real, shown
from tidegate.workload.fields import Fields

LONGEST = 1 << 24
"""No text is longer than this many tokens."""


def draw_lengths(path: str, spec: object, count: int, draw: np.random.Generator) -> Int64Array:
    """Return ``count`` lengths, int64 ``[count]``. ``spec`` is a number, or a mapping with a ``kind``.

    Kinds: ``fixed`` (value), ``uniform`` (low, high, both included), ``normal`` (mean, std), ``lognormal`` and
    ``gamma`` (mean, and cv: standard deviation over mean), ``table`` (values, and weights or none). All but ``fixed``
    and ``table`` are rounded and kept within ``low`` (1 by default) and ``high``. Raises ``ConfigError``.
    """
    if isinstance(spec, int) and not isinstance(spec, bool):
        spec = {"kind": "fixed", "value": spec}
    fields = Fields(path, spec)
    kind = fields.choice("kind", tuple(_KINDS))
    drawn = _KINDS[kind](fields, count, draw)
    fields.done()
    return drawn


def _bounded(fields: Fields, drawn: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Int64Array:
    low = fields.integer("low", 1, low=1, high=LONGEST)
    high = fields.integer("high", LONGEST, low=low, high=LONGEST)
    return np.clip(np.rint(drawn), low, high).astype(np.int64)


def _fixed(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    return np.full(count, fields.integer("value", low=1, high=LONGEST), dtype=np.int64)


def _uniform(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    low = fields.integer("low", low=1, high=LONGEST)
    return draw.integers(low, fields.integer("high", low=low, high=LONGEST), count, endpoint=True)


def _normal(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    return _bounded(fields, draw.normal(fields.positive("mean"), fields.real("std"), count))


def _lognormal(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    # A lognormal of mean m and coefficient of variation c has sigma^2 = ln(1 + c^2) and mu = ln(m) - sigma^2 / 2.
    variance = math.log1p(fields.positive("cv") ** 2)
    return _bounded(fields, draw.lognormal(math.log(fields.positive("mean")) - variance / 2, variance**0.5, count))


def _gamma(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    shape = fields.positive("cv") ** -2  # a gamma distribution's coefficient of variation is 1 / sqrt(shape)
    return _bounded(fields, draw.gamma(shape, fields.positive("mean") / shape, count))


def _table(fields: Fields, count: int, draw: np.random.Generator) -> Int64Array:
    values, weights = fields.get("values"), fields.get("weights")
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(
            f"{fields.name('values')}={shown(values)} must be a list of lengths", field=fields.name("values")
        )
    for i, value in enumerate(values):
        check_integer(f"{fields.name('values')}[{i}]", value, 1, LONGEST)
    if weights is None:
        return draw.choice(np.array(values, dtype=np.int64), count)
    if not isinstance(weights, list | tuple) or len(weights) != len(values):
        raise ConfigError(
            f"{fields.name('weights')}={shown(weights)} must be a list of {len(values)} weights, one for each value",
            field=fields.name("weights"),
        )
    for i, weight in enumerate(weights):
        check_real(f"{fields.name('weights')}[{i}]", weight, 0.0, 1e12)
    shares = np.array(weights, dtype=np.float64)
    if not shares.sum():
        raise ConfigError(f"{fields.name('weights')} must not all be 0", field=fields.name("weights"))
    return draw.choice(np.array(values, dtype=np.int64), count, p=shares / shares.sum())


_KINDS: dict[str, Callable[[Fields, int, np.random.Generator], Int64Array]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "gamma": _gamma,
    "table": _table,
}
