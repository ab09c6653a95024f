"""A state snapshot planned by a step that settled at H' = H is used by the step's repetition. Fixed in this branch."""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import drive, expected, generate, run_step
from tidegate.testing.layouts import stacked, state

driver = drive(KVCacheConfig(layers=stacked(state()), max_sequences=2, max_seq_len=64, device_bytes=1 << 14, tokens_per_block=4))
prompt = [1, 2, 3, 4, 5, 6, 7, 8]
plan = driver.plan(admit=[(driver.manager.candidate(prompt), 8)])
step, _ = driver.open(plan)
driver.drop(step)
driver.settle([0])
row = step.sequences[0].row
run_step(driver, grow=[(row, 8)])
assert generate(driver, [*prompt, 9], 2) == expected(driver, [*prompt, 9], 2)
