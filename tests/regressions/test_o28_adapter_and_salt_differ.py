"""O28: an adapter named like a salt hit the salt's blocks."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig, ReuseScope
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked

PROMPT = [token % 5 for token in range(32)]


@pytest.mark.parametrize(
    ("first", "second", "reused"),
    [
        (ReuseScope(lora_id="X"), ReuseScope(salt="X"), 0),
        (ReuseScope(lora_id="X", salt="Y"), ReuseScope(lora_id="Y", salt="X"), 0),
        (ReuseScope(salt=""), ReuseScope(), 0),
        (ReuseScope(lora_id="1"), ReuseScope(lora_id=1), 0),
        (ReuseScope(lora_id="X"), ReuseScope(lora_id="X", lora_version=2), 0),
        (ReuseScope(lora_id="X", salt="Y"), ReuseScope(lora_id="X", salt="Y"), 16),
    ],
)
def test_only_scopes_equal_in_every_part_share(first: ReuseScope, second: ReuseScope, reused: int) -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full()),
            max_sequences=2,
            max_seq_len=64,
            pool_slots=(16,),
            tokens_per_block=16,
            enable_partial_reuse=False,
        )
    )
    driver.close(start(driver, PROMPT, scope=first))

    assert driver.manager.probe(PROMPT, second).reused == reused
    driver.close(start(driver, PROMPT, scope=second))
