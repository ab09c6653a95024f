"""A prompt reuses the state (or window pages) of another text that shares its first block. Fixed in this branch."""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, expected, generate
from tidegate.testing.layouts import stacked, state, window

for layer, jobs in (
    (state(), [([1, 1, 1], 1), ([1, 1, 0, 1], 2), ([1, 1, 0, 0, 1, 0], 1)]),
    (window(5), [([0, 1, 0], 1), ([0, 1], 4), ([0, 1, 0, 0], 1)]),
):
    driver = drive(KVCacheConfig(layers=stacked(layer), max_sequences=2, max_seq_len=64, device_bytes=1 << 16, tokens_per_block=2))
    for prompt, count in jobs:
        assert generate(driver, prompt, count) == expected(driver, prompt, count)
