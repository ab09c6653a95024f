"""Fingerprints: 64-bit words that name a layer, a buffer, a position and the whole token prefix.

Prefix hashes are polynomial, so a chunk of tokens is hashed by one cumulative sum, and both the hash step and the word
are bijections, so that a word read back gives away its prefix and two neighbours prove that one follows the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import ByteArray, Int64Array

UInt64Array = npt.NDArray[np.uint64]

_MULTIPLIER = 0x9E3779B97F4A7C15
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_UNMIX = tuple(pow(m, -1, 1 << 64) for m in _MIX)
_MAX_TOKEN = 1 << 40


def _word(value: int) -> UInt64Array:
    """Return one word as an array: arrays wrap around silently, scalars warn."""
    return np.array([value & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)


def mix(words: UInt64Array) -> UInt64Array:
    """Scramble 64-bit words, one to one."""
    out: UInt64Array = words ^ (words >> np.uint64(30))
    out *= np.uint64(_MIX[0])
    out ^= out >> np.uint64(27)
    out *= np.uint64(_MIX[1])
    out ^= out >> np.uint64(31)
    return out


def unmix(words: UInt64Array) -> UInt64Array:
    """Undo ``mix``."""
    out: UInt64Array = words ^ (words >> np.uint64(31)) ^ (words >> np.uint64(62))
    out *= np.uint64(_UNMIX[1])
    out ^= (out >> np.uint64(27)) ^ (out >> np.uint64(54))
    out *= np.uint64(_UNMIX[0])
    out ^= (out >> np.uint64(30)) ^ (out >> np.uint64(60))
    return out


def root(salt: int) -> int:
    """Return the hash of the empty prefix in a reuse scope."""
    return int(mix(_word(salt + 1))[0])


def token_words(tokens: Int64Array) -> UInt64Array:
    """Return one scrambled word per token."""
    return mix(tokens.astype(np.uint64) + np.uint64(1))


def prefix_hashes(before: UInt64Array, tokens: Int64Array, cu_seqlens: Int64Array) -> UInt64Array:
    """Hash the prefix that ends at each token, for runs of tokens that each follow the prefix ``before[i]``."""
    lengths = np.diff(cu_seqlens)
    if not len(tokens):
        return np.zeros(0, dtype=np.uint64)
    up = np.cumprod(np.full(int(lengths.max()), _MULTIPLIER, dtype=np.uint64))
    down = np.cumprod(np.full(int(lengths.max()), _INVERSE, dtype=np.uint64))
    local = np.arange(len(tokens)) - np.repeat(cu_seqlens[:-1], lengths)
    sums = np.cumsum(token_words(tokens) * down[local])
    skipped = np.concatenate([np.zeros(1, dtype=np.uint64), sums])[cu_seqlens[:-1]]
    hashes: UInt64Array = up[local] * (np.repeat(before - skipped, lengths) + sums)
    return hashes


def follows(previous: UInt64Array, hashes: UInt64Array) -> npt.NDArray[np.bool_]:
    """Tell which hashes extend their previous one by exactly one token."""
    token = unmix(hashes - previous * np.uint64(_MULTIPLIER)) - np.uint64(1)
    return token < np.uint64(_MAX_TOKEN)


def buffer_key(layer_id: int, buffer_ordinal: int) -> int:
    """Return the constant that sets one buffer of one layer apart."""
    return int(mix(_word((layer_id << 16) + buffer_ordinal + 1))[0])


def _position_keys(key: int, positions: Int64Array) -> UInt64Array:
    return np.uint64(key) + positions.astype(np.uint64) * np.uint64(_MIX[0])


def encode(key: int, positions: Int64Array, hashes: UInt64Array) -> UInt64Array:
    """Return the words a buffer holds at these positions under these prefixes."""
    return mix(hashes + _position_keys(key, positions))


def decode(key: int, positions: Int64Array, words: UInt64Array) -> UInt64Array:
    """Return the prefix hashes that ``encode`` was given."""
    return unmix(words) - _position_keys(key, positions)


def spread(words: UInt64Array, num_bytes: int) -> ByteArray:
    """Repeat each word over an entry of ``num_bytes``."""
    octets = words.view(np.uint8).reshape(len(words), 8)
    return np.tile(octets, (1, -(-num_bytes // 8)))[:, :num_bytes]


def choose_tokens(hashes: UInt64Array, vocab_size: int) -> Int64Array:
    """Return the token that a context is followed by, a function of the whole prefix."""
    chosen = (mix(hashes ^ np.uint64(_MIX[1])) >> np.uint64(11)) % np.uint64(vocab_size)
    return chosen.astype(np.int64)
