"""O02: out-of-window blocks were freed on scheduled tokens, which a dispatched step still read."""

from __future__ import annotations

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import Plan, StepDriver
from tidegate.testing.greedy import drive, run_step, start
from tidegate.testing.layouts import stacked, window
from tidegate.testing.table_check import owned_blocks


def test_blocks_leave_the_window_on_settled_history_only() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(window(8)),
            max_sequences=4,
            max_seq_len=64,
            pool_slots=(24,),
            tokens_per_block=4,
            max_rewind_len=3,
            enable_prefix_caching=False,
        )
    )
    prompt = [token % 5 for token in range(16)]
    row = start(driver, prompt)
    model = driver.running[row].model
    # With slack for three rejected tokens the prompt's own end may fall to 13, whose query still reads block 1.
    assert owned_blocks(driver.arenas[0], row) == {1, 2, 3}

    first, _ = driver.open(_plan(driver, row, 20))
    kept = dict(enumerate(driver.arenas[0][row].tolist()))
    driver.open(_plan(driver, row, 24))
    plan = driver.plan(admit=[(driver.manager.candidate([9] * 12), 12)])
    assert plan is not None
    competing = driver.open(plan)[0].sequences[0].row

    assert {block: kept[block] for block in (2, 3)} == {b: int(driver.arenas[0][row, b]) for b in (2, 3)}
    assert kept[2] not in driver.arenas[0][competing].tolist()
    wrong = [(driver.engine.continuation(model.tokens, 1)[0] + 1) % 32] * 3
    driver.execute(first, [wrong])
    driver.settle()
    assert model.history == 17
    assert 2 in owned_blocks(driver.arenas[0], row)


def _plan(driver: StepDriver, row: int, end: int) -> Plan:
    plan = driver.plan(grow=[(row, end)])
    assert plan is not None
    return plan


def test_the_block_goes_once_no_settling_can_need_it() -> None:
    driver = drive(
        KVCacheConfig(
            layers=stacked(window(8)),
            max_sequences=2,
            max_seq_len=64,
            pool_slots=(24,),
            tokens_per_block=4,
            enable_prefix_caching=False,
        )
    )
    row = start(driver, [token % 5 for token in range(16)])
    owned = {}
    for end in range(17, 21):
        run_step(driver, grow=[(row, end)])
        owned[end] = owned_blocks(driver.arenas[0], row)

    assert 2 in owned[18]
    assert 2 not in owned[19]
