"""Where two runs of tokens part, against comparing them one by one; what a look-up still checks of its prompt."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.base import ConfigError, Int32Array
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.cache.token_runs import common_tokens
from tidegate.testing.layouts import full, stacked, window

LONG = 20_000


def common_one_by_one(a: Int32Array, b: Int32Array) -> int:
    for i, (one, other) in enumerate(zip(a.tolist(), b.tolist(), strict=False)):
        if one != other:
            return i
    return min(len(a), len(b))


def part_at(tokens: Int32Array, at: int, bit: int) -> Int32Array:
    """Equal tokens, but with one bit of one of them, and all behind it, changed."""
    other = tokens.copy()
    other[at] ^= 1 << bit
    other[at + 1 :] += 1
    return other


def common(cached: Int32Array, asked: Int32Array) -> int:
    found = common_tokens(cached.tobytes(), asked.tobytes())
    assert common_tokens(cached.tobytes(), memoryview(asked.tobytes())) == found
    return found


@pytest.mark.parametrize("length", [1, 2, 31, 70])
@pytest.mark.parametrize("bit", [0, 7, 8, 23, 30])
def test_short_runs_part_where_their_first_difference_is(length: int, bit: int) -> None:
    tokens = np.arange(length, dtype=np.int32) * 65_537

    for at in range(length):
        other = part_at(tokens, at, bit)
        assert common(tokens, other) == common_one_by_one(tokens, other) == at


@pytest.mark.parametrize("length", [4096, 4097, 8193, LONG])
def test_long_runs_part_where_their_first_difference_is(length: int) -> None:
    tokens = np.arange(length, dtype=np.int32) * 3
    places = {*range(0, length, 479), *range(length - 5, length), *range(length // 2 - 3, length // 2 + 3)}

    for at in sorted(places):
        for bit in (0, 9, 30):
            assert common(tokens, part_at(tokens, at, bit)) == at


def test_a_later_difference_does_not_hide_the_first() -> None:
    tokens = np.zeros(LONG, np.int32)
    rng = np.random.default_rng(3)
    for _ in range(200):
        other = tokens.copy()
        other[rng.integers(0, LONG, 5)] = 1
        assert common(tokens, other) == int(np.flatnonzero(other)[0])


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, LONG])
def test_the_shorter_of_equal_runs_is_shared_in_full(length: int) -> None:
    tokens = np.arange(LONG, dtype=np.int32)

    assert common(tokens, tokens[:length]) == length
    assert common(tokens[:length], tokens) == length


def cached(prompts: list[Int32Array], max_seq_len: int = 64) -> KVCacheManager:
    """Compute prompts one after the other in a cache of blocks of 4 tokens."""
    layers = stacked(full(), window(8))
    cache = KVCacheManager(
        KVCacheConfig(layers=layers, max_sequences=2, max_seq_len=max_seq_len, pool_slots=(200,), tokens_per_block=4),
        with_memory=False,
    )
    for prompt in prompts:
        with cache.create(prompt) as sequence:
            assert sequence.resize(len(prompt))
            assert sequence.resize(history_length=len(prompt))
    return cache


def test_a_prompt_is_matched_up_to_the_token_where_it_parts() -> None:
    """One child and several, whole nodes and parts of them, tails."""
    tokens = np.arange(1, 39, dtype=np.int32)
    prompts = [tokens[:8], tokens[:24], tokens, np.concatenate([tokens[:16], tokens[:9] + 100])]
    cache = cached(prompts)

    for prompt in prompts:
        for at in range(len(prompt)):
            asked = np.append(part_at(prompt, at, 10), 7)
            assert cache.probe(asked).raw == max(common_one_by_one(asked, one) for one in prompts)
    cache.audit()


def test_a_strided_prompt_matches_like_its_copy() -> None:
    tokens = np.arange(1, 25, dtype=np.int32)
    cache = cached([tokens])

    strided = np.repeat(tokens, 2)[::2]

    assert not strided.flags.c_contiguous
    assert cache.probe(strided).reused == cache.probe(tokens).reused == 23
    assert cache.probe(np.ascontiguousarray(tokens[::-1])[::-1]).reused == 23


def test_a_negative_id_is_refused_wherever_it_is() -> None:
    tokens = np.arange(1, 25, dtype=np.int32)
    cache = cached([tokens])

    for at in range(len(tokens)):
        asked = tokens.copy()
        asked[at] = -1
        with pytest.raises(ConfigError, match="ids must be in"):
            cache.probe(asked)
