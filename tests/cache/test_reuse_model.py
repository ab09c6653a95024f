"""How much is reused, against a tree by presence, in pools so ample that nothing is ever evicted."""

from __future__ import annotations

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.testing.cache_model import ModelTree
from tidegate.testing.cache_walk import VOCAB_SIZE, group_rules
from tidegate.testing.choices import Choose, chance, seeded
from tidegate.testing.driver import StepDriver
from tidegate.testing.greedy import decode, drive, run_step
from tidegate.testing.layouts import build_layout, build_prompt, build_texts, full, stacked

LENGTH = 40


def ample(choose: Choose, *, only_full: bool, partial: bool) -> StepDriver:
    layout = build_layout(choose)
    layers = layout.layers
    if only_full:
        blocks = [layout.tokens_per_block * times for times in (1, 2, 4)[: choose(1, 3)]]
        layers = stacked(*(full(block_tokens=block) for block in blocks))
    return drive(
        KVCacheConfig(
            layers=layers,
            device_bytes=1 << 19,
            max_sequences=4,
            max_seq_len=LENGTH + 8,
            tokens_per_block=layout.tokens_per_block,
            max_chunk_tokens=LENGTH,
            enable_partial_reuse=partial,
        )
    )


class Bounds:
    """What surely stays cached, and all that was ever computed: a last partial unit may or may not be kept."""

    def __init__(self, driver: StepDriver) -> None:
        self.unit = driver.manager.match_unit
        self.surely = ModelTree(group_rules(driver.manager), self.unit)
        self.at_most = ModelTree(group_rules(driver.manager), self.unit)

    def note(self, settled: list[int]) -> None:
        """Note a prefix that settled at the end of a prefill chunk or of its sequence."""
        whole = settled[: len(settled) // self.unit * self.unit]
        self.surely.publish_full(None, whole)
        self.at_most.publish_full(None, settled)
        if whole == settled:
            self.surely.keep_checkpoint(None, whole)


def run_request(driver: StepDriver, bounds: Bounds, prompt: list[int], choose: Choose) -> None:
    """Prefill in random chunks, decode a little, close."""
    candidate = driver.manager.candidate(prompt)
    end = driver.manager.lookup(candidate)
    row = None
    while end < len(prompt):
        end += choose(1, len(prompt) - end)
        step = run_step(driver, admit=[(candidate, end)]) if row is None else run_step(driver, grow=[(row, end)])
        assert step is not None
        row = step.sequences[0].row
        bounds.note(prompt[:end])
    assert row is not None
    decode(driver, row, choose(0, 5))
    model = driver.running[row].model
    driver.close(row)
    bounds.note(model.tokens[: model.history])


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_full_attention_reuses_all_whole_blocks_that_were_published(seed: int, partial: bool) -> None:
    print(f"seed {seed}")
    choose = seeded(seed)
    driver = ample(choose, only_full=True, partial=partial)
    bounds = Bounds(driver)
    texts = build_texts(choose, 4, LENGTH, VOCAB_SIZE)
    for _ in range(25):
        prompt = build_prompt(choose, texts, LENGTH, VOCAB_SIZE)

        reused = driver.manager.probe(prompt).reused
        assert bounds.surely.longest_reuse(None, prompt, partial=partial) <= reused
        assert reused <= bounds.at_most.longest_reuse(None, prompt, partial=partial)
        run_request(driver, bounds, prompt, choose)
        driver.manager.audit()


@pytest.mark.parametrize("seed", range(40))
def test_windows_and_states_reuse_at_least_their_checkpoints(seed: int) -> None:
    print(f"seed {seed}")
    choose = seeded(seed)
    partial = chance(choose, 50)
    driver = ample(choose, only_full=False, partial=partial)
    bounds = Bounds(driver)
    texts = build_texts(choose, 4, LENGTH, VOCAB_SIZE)
    for _ in range(25):
        prompt = build_prompt(choose, texts, LENGTH, VOCAB_SIZE)

        assert driver.manager.probe(prompt).reused >= bounds.surely.longest_reuse(None, prompt, partial=False)
        run_request(driver, bounds, prompt, choose)
        driver.manager.audit()
