"""A step is dispatched and aborted before its copies ran: the row keeps the empty copy and loses its tokens.

"After dispatch an abort restores every live sequence": either the copy must be undone too, or the contract must say
that a dispatched step's copies always have to be done.
"""
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import decode, drive, start
from tidegate.testing.layouts import full, stacked

driver = drive(KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=64, pool_slots=(32,), tokens_per_block=8))
row = start(driver, [1, 2, 3, 4, 5])
child = driver.fork(row)
with driver.manager.reserve(driver.plan(grow=[(child, 6)]).quote) as reservation:
    reservation.dispatch()
decode(driver, child, 2)
