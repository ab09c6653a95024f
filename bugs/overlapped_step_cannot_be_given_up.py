"""With a later step open, a step that did not count (H' = H) cannot settle, and the later one cannot be taken back.

kv_cache.md section 3: settling at H' = H is legal. After a failed forward under overlap the rows have no legal way on:
advance refuses, suspend and close refuse open steps, and a kept reservation cannot be rolled back.
"""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked

driver = drive(KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=64, pool_slots=(32,), tokens_per_block=8))
row = start(driver, [1, 2, 3, 4, 5])
for end in (6, 7):
    driver.open(driver.plan(grow=[(row, end)]))
driver.drop(driver.open_steps[0])
driver.settle([5])
