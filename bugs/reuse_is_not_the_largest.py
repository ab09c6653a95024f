"""Minor: where only two checkpoints together hold the window of the raw match, the border below it is taken instead.

kv_cache.md section 5 asks for the largest reusable length. ``Matcher._agree`` tries one checkpoint per candidate, and
takes a lower candidate from one checkpoint before it tries the higher one from several.
"""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked, window

driver = drive(KVCacheConfig(layers=stacked(full(), window(4)), max_sequences=2, max_seq_len=64, pool_slots=(64,), tokens_per_block=4))
prompt = [token % 5 for token in range(16)]
driver.close(start(driver, prompt, chunk=4))
asked = [*prompt[:13], 9, 9]
match = driver.manager.probe(asked)
print(match.reused, match.raw)
assert match.reused == 13, "block 2 is kept by the checkpoint at 12, block 3 by the one at 16"
