"""Comparing runs of int32 tokens as bytes: one memcmp each, without a copy."""

from __future__ import annotations

import numpy as np

from tidegate.cache.nodes import TOKEN_BYTES

INT32 = np.dtype(np.int32)
_ARRAY_BYTES = 1 << 14
"""Runs up to this long are compared as arrays."""


def common_tokens(cached: bytes, asked: bytes | memoryview) -> int:
    """Return how many leading tokens two runs share; a view must be of bytes.

    In long runs the first difference is bisected: ``startswith`` compares runs where they lie, and stops early.
    """
    low, high = 0, len(cached)
    if len(asked) < high:
        high = len(asked)
    if not high or cached[0] != asked[0]:
        return 0
    while high - low > _ARRAY_BYTES:
        middle = (low + high) // (2 * TOKEN_BYTES) * TOKEN_BYTES
        if cached.startswith(asked[low:middle], low):
            low = middle
        else:
            high = middle
    count = (high - low) // TOKEN_BYTES
    differ = np.frombuffer(cached, INT32, count, low) != np.frombuffer(asked, INT32, count, low)
    first = int(differ.argmax())
    if not first and not differ[0]:
        first = count
    return low // TOKEN_BYTES + first
