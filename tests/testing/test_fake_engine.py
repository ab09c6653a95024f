"""The fake engine catches every kind of wrong page, on tables made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tidegate.base import BufferLocation, BufferSpec, ConfigError, EngineError, KVLayout, LayerSpec, PoolMemory
from tidegate.engine import GroupTables, StepInput
from tidegate.testing.fake_engine import FakeEngine

BLOCK = 4
NUM_SLOTS = 64
BUFFERS = (BufferSpec("key", 16), BufferSpec("value", 16))
FULL = LayerSpec(0, "full_attention", BUFFERS)
WINDOW = LayerSpec(0, "sliding_attention", BUFFERS, window=6, sink_tokens=2)
STATE = LayerSpec(0, "linear_attention", BUFFERS)
COMPRESSED = LayerSpec(0, "compressed_sparse_attention", BUFFERS, ratio=2)


class Bench:
    """One layer, two rows of pages, and steps by hand."""

    def __init__(self, layer: LayerSpec, *, declared: bool = True) -> None:
        self.engine = FakeEngine([layer])
        is_state = layer.attention == "linear_attention"
        entries = 1 if is_state else BLOCK // layer.ratio
        locations = tuple(BufferLocation(0, b.role, 0, i, 0, i, i, 16 * entries) for i, b in enumerate(BUFFERS))
        rows = np.zeros((NUM_SLOTS, 2 * 16 * entries), dtype=np.uint8)
        block_tokens = 1 << 40 if is_state else BLOCK
        self.engine.bind(KVLayout((block_tokens,), locations), [PoolMemory(rows, 2, 16 * entries)])
        self.arena = np.arange(2 * 16, dtype=np.int32).reshape(2, 16)
        if declared:
            self.engine.declare(0, [])
            self.engine.declare(1, [])

    def step(self, row: int, start: int, tokens: Sequence[int], layer_tables: np.ndarray | None = None) -> int:
        """Run one sequence's step and return the next token."""
        count = len(tokens)
        step = StepInput(
            token_ids=np.array(tokens, dtype=np.int64),
            positions=np.arange(start, start + count),
            cu_seqlens=np.array([0, count], dtype=np.int32),
            rows=np.array([row]),
            groups=(GroupTables(self.arena, layer_tables),),
            logit_positions=np.array([count - 1]),
        )
        return int(self.engine.forward(step).argmax())


@pytest.mark.parametrize("layer", [FULL, WINDOW, STATE, COMPRESSED])
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_chunked_output_is_the_continuation(layer: LayerSpec, chunk: int) -> None:
    bench, prompt = Bench(layer), [5, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]

    for start in range(0, len(prompt), chunk):
        token = bench.step(0, start, prompt[start : start + chunk])
    decoded = [token]
    for position in range(len(prompt), len(prompt) + 5):
        decoded.append(bench.step(0, position, decoded[-1:]))

    assert decoded == bench.engine.continuation(prompt, 6)


def test_a_page_of_another_sequence_is_caught() -> None:
    bench = Bench(FULL)
    bench.step(0, 0, [1] * 8)
    bench.step(1, 0, [2] * 8)
    bench.arena[0, 1] = bench.arena[1, 1]

    with pytest.raises(EngineError, match="row 0, position 4, block 1"):
        bench.step(0, 8, [1])


def test_two_blocks_swapped_are_caught() -> None:
    bench = Bench(FULL)
    bench.step(0, 0, [1] * 8)
    bench.arena[0, [0, 1]] = bench.arena[0, [1, 0]]

    with pytest.raises(EngineError, match="position 0"):
        bench.step(0, 8, [1])


def test_a_missing_page_is_caught_on_read_and_on_write() -> None:
    bench = Bench(FULL)
    bench.step(0, 0, [1] * 8)

    bench.arena[0, 2] = -1
    with pytest.raises(EngineError, match="position 8, block 2"):
        bench.step(0, 8, [1])
    bench.arena[0, 2], bench.arena[0, 0] = 2, -1
    with pytest.raises(EngineError, match="position 0, block 0"):
        bench.step(0, 8, [1])


def test_a_page_never_written_is_caught() -> None:
    bench = Bench(FULL)
    bench.engine.declare(0, [1] * 8)

    with pytest.raises(EngineError, match="nothing"):
        bench.step(0, 8, [1])


@pytest.mark.parametrize(("missing", "is_read"), [(0, True), (1, False), (2, True)])
def test_a_window_reads_its_sinks_and_its_window_only(missing: int, is_read: bool) -> None:
    bench = Bench(WINDOW)
    bench.step(0, 0, [1] * 13)
    bench.arena[0, missing] = -1

    if is_read:
        with pytest.raises(EngineError):
            bench.step(0, 13, [1])
    else:
        bench.step(0, 13, [1])


def test_the_same_text_under_another_salt_is_caught() -> None:
    bench = Bench(FULL)
    bench.step(0, 0, [1] * 8)
    bench.engine.declare(1, [1] * 8, salt=7)
    bench.arena[1] = bench.arena[0]

    with pytest.raises(EngineError):
        bench.step(1, 8, [1])


def test_a_state_of_another_position_is_caught() -> None:
    bench = Bench(STATE)
    bench.step(0, 0, [1] * 8)

    with pytest.raises(EngineError, match="position 6"):
        bench.step(0, 7, [1])


def test_scratch_shared_by_blocks_of_one_layer_is_caught() -> None:
    bench = Bench(WINDOW)
    colliding = np.zeros((2, 1, 16), dtype=np.int32)
    colliding[0, 0], colliding[1, 0] = np.arange(16) * 2, np.arange(16) * 2 + 1
    colliding[:, 0, 1] = colliding[:, 0, 2]

    with pytest.raises(EngineError):
        bench.step(0, 0, [1] * 13, colliding)


@pytest.mark.parametrize("layer", [FULL, WINDOW, STATE])
def test_an_undeclared_prefix_is_read_from_the_cache(layer: LayerSpec) -> None:
    bench, prompt = Bench(layer, declared=False), [3, 1, 4, 1, 5, 9, 2, 6]
    first = bench.step(0, 0, prompt)
    bench.arena[1] = bench.arena[0]

    second = bench.step(1, len(prompt), [first])

    assert [first, second] == bench.engine.continuation(prompt, 2)


def test_an_undeclared_prefix_must_be_one_chain() -> None:
    bench = Bench(FULL, declared=False)
    bench.step(0, 0, [3, 1, 4, 1, 5, 9, 2, 6])
    bench.step(1, 0, [2, 7, 1, 8, 2, 8, 1, 8])
    bench.arena[1, 1] = bench.arena[0, 1]

    with pytest.raises(EngineError, match="does not follow"):
        bench.step(1, 8, [1])


def test_an_undeclared_row_may_pass_to_another_sequence() -> None:
    bench = Bench(FULL, declared=False)
    bench.step(0, 0, [1, 2, 3, 4])
    bench.step(0, 0, [4, 3, 2, 1])

    assert bench.step(0, 4, [0]) == bench.engine.continuation([4, 3, 2, 1, 0], 1)[0]


def test_an_entry_too_small_for_a_fingerprint_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 8 bytes"):
        FakeEngine([LayerSpec(0, "full_attention", (BufferSpec("key", 4),))])


def test_contradicting_step_arrays_are_refused() -> None:
    bench = Bench(FULL)
    good = StepInput(
        token_ids=np.array([1, 2]),
        positions=np.array([0, 2]),
        cu_seqlens=np.array([0, 2], dtype=np.int32),
        rows=np.array([0]),
        groups=(GroupTables(bench.arena),),
        logit_positions=np.array([1]),
    )

    with pytest.raises(EngineError, match="consecutive"):
        bench.engine.forward(good)


def test_a_failure_on_demand_happens_once() -> None:
    bench = Bench(FULL)
    bench.engine.fail_next()

    with pytest.raises(EngineError, match="as told"):
        bench.step(0, 0, [1])
    bench.step(0, 0, [1])
