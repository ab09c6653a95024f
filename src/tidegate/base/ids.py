"""Index types. Arrays of them are plain ``int32`` or ``int64``; the names say what a single index means."""

from __future__ import annotations

from typing import NewType

import numpy as np
import numpy.typing as npt

Row = NewType("Row", int)
"""A running sequence's place in the structure of arrays."""
GroupId = NewType("GroupId", int)
"""A layer group (life cycle)."""
PoolGroupId = NewType("PoolGroupId", int)
"""Pools that are allocated together."""
PageId = NewType("PageId", int)
"""A page, stable across tiers."""
SlotId = NewType("SlotId", int)
"""A place for a page in one tier."""
BlockOrdinal = NewType("BlockOrdinal", int)
"""Index of a block in its sequence."""

BAD_PAGE = -1
"""Table entry of a block that owns no page: masked by engines, never read."""

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
