"""Random numbers that are a function of (seed, position), so that no generator's state ties requests together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import Int64Array

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: Int64Array, positions: Int64Array) -> npt.NDArray[np.float64]:
    """Return one number in ``[0, 1)`` per (seed, position)."""
    # The seed is mixed before the position enters: seeds s and s+1 must not be one stream, shifted.
    mixed = _mix(_mix(seeds.astype(np.uint64) + _STEP) ^ _mix(positions.astype(np.uint64) * _STEP + _STEP))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every input bit over every output bit (the finaliser of splitmix64; wraps around on purpose)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
