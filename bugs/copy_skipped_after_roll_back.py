"""A rolled back reservation forgets that the row's last page is shared; its next step writes into the page. Fixed here."""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import decode, drive, run_step, start
from tidegate.testing.layouts import full, stacked

driver = drive(KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=64, pool_slots=(32,), tokens_per_block=8, max_rewind_len=4))
row = start(driver, [1, 2, 3, 4, 5])
child = driver.fork(row)
with driver.manager.reserve(driver.plan(grow=[(child, 6)]).quote):
    pass
for owner in (child, row):
    step = driver.open(driver.plan(grow=[(owner, 6)]))[0]
    print(owner, "copies", len(step.pages.copies), driver.arenas[0][[row, child], 0])
    driver.execute(step)
    driver.settle()
assert driver.arenas[0][row, 0] != driver.arenas[0][child, 0], "both rows write into one page"
