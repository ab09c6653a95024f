"""O30: prefix reuse across tenants is a timing channel; a salt must isolate."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig, ReuseScope
from tidegate.testing.greedy import drive, expected, generate, start
from tidegate.testing.layouts import full, stacked

PROMPT = [token % 11 for token in range(64)]
TENANT_A, TENANT_B = ReuseScope(salt="a"), ReuseScope(salt="b")


@pytest.mark.parametrize(("partial", "reused"), [(False, 48), (True, 63)])
def test_a_tenant_meets_only_its_own_content(partial: bool, reused: int) -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full()),
            max_sequences=2,
            max_seq_len=96,
            pool_slots=(32,),
            tokens_per_block=16,
            enable_partial_reuse=partial,
        )
    )
    driver.close(start(driver, PROMPT, scope=TENANT_A))

    assert driver.manager.probe(PROMPT, TENANT_A).reused == reused
    for stranger in (TENANT_B, ReuseScope()):
        assert driver.manager.probe(PROMPT, stranger).reused == 0
        assert driver.manager.probe(PROMPT[:40], stranger).raw == 0
        assert generate(driver, PROMPT, 3, scope=stranger) == expected(driver, PROMPT, 3, stranger)


def test_invalidating_one_tenant_spares_the_other() -> None:
    driver = drive(
        KVCacheConfig(layers=stacked(full()), max_sequences=2, max_seq_len=96, pool_slots=(32,), tokens_per_block=16)
    )
    for tenant in (TENANT_A, TENANT_B):
        driver.close(start(driver, PROMPT, scope=tenant))

    driver.manager.reuse.invalidate(TENANT_A)

    assert driver.manager.probe(PROMPT, TENANT_A).reused == 0
    assert driver.manager.probe(PROMPT, TENANT_B).reused == 63
    driver.manager.audit()
