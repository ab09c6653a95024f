"""What a prompt says, as segments of reproducible text: equal segments are equal tokens, without storing any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import Int32Array, Int64Array

VOCAB_SIZE = 2**30
"""Token ids of made-up content are below this."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_SHIFT = np.uint64(34)


def content_tokens(keys: Int64Array, places: Int64Array) -> Int32Array:
    """Return the token at place ``places[i]`` of the text ``keys[i]``, int32 ``[n]``: the same for the same pair."""
    return seeded_tokens(content_seeds(keys), places)


def content_seeds(keys: Int64Array) -> npt.NDArray[np.uint64]:
    """Return what ``seeded_tokens`` wants of texts: for who asks for the same texts again and again."""
    return _mixed(keys.astype(np.uint64))


def seeded_tokens(seeds: npt.NDArray[np.uint64], places: Int64Array) -> Int32Array:
    """Return tokens as ``content_tokens`` does, from the texts' seeds."""
    return (_mixed(seeds + places.view(np.uint64) * _GOLDEN) >> _SHIFT).astype(np.int32)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    words = words + _GOLDEN
    words ^= words >> _SHIFT_1
    words *= _MIX_1
    words ^= words >> _SHIFT_2
    words *= _MIX_2
    words ^= words >> _SHIFT_3
    return words


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Segments end to end: segment ``i`` is places ``offsets[i]`` to ``offsets[i] + lengths[i]`` of text ``keys[i]``.

    All int64 ``[k]``. ``given`` holds real token ids instead, where a trace has them; then there are no segments.
    """

    keys: Int64Array
    offsets: Int64Array
    lengths: Int64Array
    given: Int32Array | None = None

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return int(self.lengths.sum()) if self.given is None else len(self.given)

    def tokens(self) -> Int32Array:
        """Return the token ids, int32 ``[num_tokens]``."""
        if self.given is not None:
            return self.given
        ends = np.cumsum(self.lengths)
        places = np.arange(self.num_tokens) - np.repeat(ends - self.lengths - self.offsets, self.lengths)
        return content_tokens(np.repeat(self.keys, self.lengths), places)
