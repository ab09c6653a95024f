"""What routing knows of the ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tidegate.base import ConfigError, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class RankLoads:
    """One entry per rank, int64 ``[ranks]``.

    ``num_live`` requests wait or run there, ``num_retiring`` have ended but for their last step: these leave their
    seat to others and still count as work. ``prefill_tokens`` are uncached prompt tokens outstanding,
    ``decode_tokens`` decodes in the next step; ``max_requests`` is how many may be live.
    """

    num_live: Int64Array
    num_retiring: Int64Array
    prefill_tokens: Int64Array
    decode_tokens: Int64Array
    max_requests: Int64Array

    def __post_init__(self) -> None:
        shapes = {field.name: np.shape(getattr(self, field.name)) for field in fields(self)}
        if len(set(shapes.values())) != 1 or len(shapes["num_live"]) != 1:
            raise ConfigError(f"loads differ in shape: {shapes}; each must be [ranks]", field="loads")

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.num_live)
