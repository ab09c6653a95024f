"""A step of a model with state layers ran and then settles at H' = H (legal), or is aborted: the state is gone."""
import sys

import numpy as np

from tidegate.base import EngineError
from tidegate.cache import KVCacheConfig
from tidegate.testing.greedy import decode, drive, expected, start
from tidegate.testing.layouts import stacked, state

PROMPT = [1, 2, 3, 4, 5]
for how in ("settle at H", "abort", "failed forward"):
    driver = drive(KVCacheConfig(layers=stacked(state(), state()), max_sequences=2, max_seq_len=64, device_bytes=1 << 14, tokens_per_block=4))
    row = start(driver, PROMPT)
    plan = driver.plan(grow=[(row, 6)])
    if how == "settle at H":
        step, _ = driver.open(plan)
        driver.execute(step)
        driver.settle([5])
    else:
        try:
            with driver.manager.reserve(plan.quote) as reservation:
                step = driver.begin(reservation.dispatch(), reservation.admitted)
                if how == "failed forward":
                    driver.engine.fail_next()
                driver.execute(step)
                driver.running[row].cut()
        except EngineError:
            pass
    try:
        decode(driver, row, 2)
        print(how, "ok")
    except EngineError as error:
        print(how, error)
