"""What each rank has to do already, as all ranks see it after the gathering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import ConfigError, Int64Array

_FIELDS = ("num_live", "num_retiring", "prefill_tokens", "decode_tokens", "max_requests")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankLoads:
    """One int64 array per fact, indexed by rank; nothing negative.

    ``num_live`` requests wait or run on the rank; it admits while they are fewer than ``max_requests``.
    ``num_retiring`` have finished and only wait for their last step: their seats are free, but they still count where
    a request is placed. ``prefill_tokens`` are prompt tokens that are neither cached nor computed, ``decode_tokens``
    the context of what decodes.
    """

    num_live: Int64Array
    num_retiring: Int64Array
    prefill_tokens: Int64Array
    decode_tokens: Int64Array
    max_requests: Int64Array

    def __post_init__(self) -> None:
        num_ranks = len(self.num_live) if np.ndim(self.num_live) == 1 else 0
        for name in _FIELDS:
            array = getattr(self, name)
            if (
                not isinstance(array, np.ndarray)
                or array.dtype != np.int64
                or array.shape != (num_ranks,)
                or not num_ranks
            ):
                raise ConfigError(
                    f"{name} must be an int64 array with one entry for each rank, at least one", field=name
                )
            if (array < 0).any():
                rank = int(np.argmax(array < 0))
                raise ConfigError(
                    f"{name}[{rank}]={array[rank]} must be at least 0", field=name, value=int(array[rank])
                )

    @property
    def num_ranks(self) -> int:
        """How many ranks there are."""
        return len(self.num_live)
