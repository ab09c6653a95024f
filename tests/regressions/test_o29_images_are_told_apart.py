"""O29: two images with equal placeholder tokens shared one key. Here content enters as interned ids."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import drive, start
from tidegate.testing.layouts import full, stacked

FIRST_IMAGE, SECOND_IMAGE = (1 << 30) + 1, (1 << 30) + 1 + (1 << 16)


def prompt(image: int, *, shift: int = 0) -> list[int]:
    return [*range(1, 11 + shift), *[image] * 20, *range(11, 21)]


def after_first_image(*, partial: bool) -> StepDriver:
    driver = drive(
        KVCacheConfig(
            layers=stacked(full()),
            max_sequences=2,
            max_seq_len=64,
            pool_slots=(32,),
            tokens_per_block=8,
            enable_partial_reuse=partial,
        )
    )
    driver.close(start(driver, prompt(FIRST_IMAGE)))
    return driver


@pytest.mark.parametrize(
    ("image", "shift", "partial", "reused"),
    [
        (SECOND_IMAGE, 0, False, 8),
        (SECOND_IMAGE, 0, True, 10),
        (FIRST_IMAGE, 0, False, 32),
        (FIRST_IMAGE, 0, True, 39),
        (FIRST_IMAGE, 1, False, 8),
        (FIRST_IMAGE, 1, True, 10),
    ],
)
def test_an_image_is_reused_only_at_its_place(image: int, shift: int, partial: bool, reused: int) -> None:
    driver = after_first_image(partial=partial)
    asked = prompt(image, shift=shift)

    assert driver.manager.probe(asked).reused == reused
    start(driver, asked)


def test_a_request_may_keep_its_content_out_of_the_cache() -> None:
    driver = after_first_image(partial=True)
    secret = [30, *prompt(FIRST_IMAGE)]
    candidate = driver.manager.candidate(secret, access="none")
    assert driver.manager.lookup(candidate) == 0
    plan = driver.plan(admit=[(candidate, len(secret))])
    assert plan is not None
    step, _ = driver.open(plan)
    driver.execute(step)
    driver.settle()
    driver.close(step.sequences[0].row)

    assert driver.manager.probe(secret).reused == 0
