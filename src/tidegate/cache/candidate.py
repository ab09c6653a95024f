"""A waiting or suspended request as the cache sees it. It owns nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int32Array, StateError, shown
from tidegate.cache.nodes import ReuseScope
from tidegate.cache.prefix import NO_MATCH, PrefixMatch

Access = Literal["read_write", "read", "none"]
_ACCESS = ("read_write", "read", "none")
_INT32 = np.dtype(np.int32)


class Candidate:
    """Tokens that want to become a sequence. ``match`` is what the cache held of them when last looked up."""

    __slots__ = (
        "access",
        "declared",
        "home",
        "is_admitted",
        "is_resumed",
        "match",
        "match_version",
        "retention",
        "reuse_limit",
        "scope",
        "tokens",
    )

    def __init__(self, tokens: Int32Array, scope: ReuseScope, access: Access, retention: int) -> None:
        self.tokens = tokens
        tokens.flags.writeable = False  # the prefix tree may read them later
        self.scope = scope
        self.access: Access = access
        self.retention = retention
        self.declared: tuple[int, ...] = ()
        self.reuse_limit: int | None = None
        self.match: PrefixMatch = NO_MATCH
        self.match_version = -1
        self.home: object = None
        """The cache that ``match`` is of."""
        self.is_admitted = False
        self.is_resumed = False

    def limit_reuse(self, limit: int | None) -> None:
        """Let at most ``limit`` tokens be reused, None: all that is cached. Raises ``StateError`` once admitted."""
        if self.is_admitted:
            raise StateError("the candidate is admitted already")
        self.reuse_limit = limit
        self.match, self.home = NO_MATCH, None

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return len(self.tokens)

    @property
    def reused(self) -> int:
        """Tokens it would reuse, as of the last look-up."""
        return self.match.reused


def checked_tokens(tokens: npt.ArrayLike, max_seq_len: int) -> Int32Array:
    """Return ``tokens`` as an int32 array, itself if it is one; ``ConfigError`` names what is wrong with them."""
    array = int32_tokens(tokens, max_seq_len)
    check_ids(array)
    return array


def int32_tokens(tokens: npt.ArrayLike, max_seq_len: int) -> Int32Array:
    """Do the same, but what is int32 already may hold negative ids."""
    try:
        array = np.asarray(tokens)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"tokens: cannot be read as an array: {error}") from None
    if array.ndim != 1 or not len(array):
        raise ConfigError(f"tokens: must be a non-empty list of token ids, got shape {array.shape}")
    is_int32 = array.dtype == _INT32
    if not is_int32 and not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(f"tokens: must be integers, got {array.dtype}")
    if len(array) > max_seq_len:
        raise ConfigError(f"tokens: {len(array)} of them are above max_seq_len={max_seq_len}")
    if is_int32:
        return array
    if array.min() < 0 or array.max() >= 1 << 31:
        raise _bad_ids(array)
    return array.astype(np.int32)


def check_ids(tokens: Int32Array, begin: int = 0) -> None:
    """Raise ``ConfigError`` unless all ids from ``begin`` on are legal."""
    rest = tokens[begin:]
    # Most often a prompt is cached up to its last token.
    if rest.item(rest.argmin() if len(rest) > 1 else 0) < 0:
        raise _bad_ids(tokens)


def _bad_ids(array: npt.NDArray[np.integer]) -> ConfigError:
    return ConfigError(f"tokens: ids must be in [0, 2^31), got {array.min()} … {array.max()}")


def checked_access(access: str) -> Access:
    """Return ``access`` if it is one of the legal words."""
    if access not in _ACCESS:
        raise ConfigError(f"access={shown(access)} must be one of {', '.join(_ACCESS)}")
    return access  # type: ignore[return-value]  # just checked


def checked_lengths(lengths: object, limit: int, unit: int) -> tuple[int, ...]:
    """Return declared prefix lengths in whole units, ascending; ``ConfigError`` unless integers in ``[1, limit]``."""
    if not isinstance(lengths, Sequence) or not all(type(n) is int and 0 < n <= limit for n in lengths):
        raise ConfigError(f"declared={shown(lengths)} must be prefix lengths in [1, {limit}]")
    return tuple(sorted({length // unit * unit for length in lengths} - {0}))
