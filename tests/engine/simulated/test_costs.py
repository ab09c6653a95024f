from pathlib import Path

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.engine.simulated import (
    FleetStep,
    KernelTables,
    LinearCost,
    RooflineCost,
    TableCost,
    hardware_of,
    memory_left,
    model_of,
)


def step(*ranks: list[tuple[int, int]]) -> FleetStep:
    spans = np.array([span for rank in ranks for span in rank], dtype=np.int64).reshape(-1, 2)
    counts = [len(rank) for rank in ranks]
    nothing = np.zeros(len(ranks), dtype=np.int64)
    return FleetStep(spans[:, 0], spans[:, 1], np.cumsum([0, *counts]), np.array(counts), nothing)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.6),
        ("qwen3-32b", 32.8),
        ("qwen3-30b-a3b", 30.5),
        ("gemma-3-27b", 27.0),
        ("gpt-oss-20b", 20.9),
        ("gpt-oss-120b", 116.8),
        ("deepseek-v3", 671.0),
    ],
)
def test_models_have_their_published_size(name: str, billions: float) -> None:
    assert model_of(name).num_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("llama-3.1-8b", 131.072), ("llama-3.1-70b", 327.68), ("deepseek-v3", 70.272), ("deepseek-v4-flash", 3.7)],
)
def test_models_cache_what_they_are_known_to(name: str, kilobytes: float) -> None:
    assert model_of(name).kv_bytes_per_token / 1e3 == pytest.approx(kilobytes, rel=0.02)


def test_linear_steps_take_as_long_as_the_busiest_rank() -> None:
    time = LinearCost(0.01, 0.001).step_time(step([(0, 5), (9, 10)], [], [(3, 5)]))
    assert time.rank_s == pytest.approx([0.006, 0.0, 0.002])
    assert time.total_s == pytest.approx(0.016)


def test_decoding_alone_is_bound_by_reading_the_weights() -> None:
    model, card = model_of("llama-3.1-8b"), hardware_of("h100")
    time = RooflineCost(model, card, host_s=0.0).step_time(step([(0, 1)])).total_s
    read = 2.0 * (model.num_parameters - model.embedding_parameters // 2)
    assert time == pytest.approx(read / (card.memory_bytes_per_s * card.memory_share), rel=0.001)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    model, card = model_of("llama-3.1-8b"), hardware_of("h100")
    time = RooflineCost(model, card, host_s=0.0).step_time(step([(0, 8192)])).total_s
    flops = 2.0 * (model.num_parameters - model.embedding_parameters) * 8192 + 4 * 32 * 128 * 32 * 8192 * 8193 / 2
    assert time == pytest.approx(flops / (card.flops_per_s * card.flops_share), rel=0.02)


def test_a_window_costs_the_same_at_any_context() -> None:
    card = hardware_of("h200")
    windowed, whole = model_of("gpt-oss-20b"), model_of("llama-3.1-8b")

    def extra(name: str, near: int, far: int) -> float:
        cost = RooflineCost(model_of(name), card)
        return cost.step_time(step([(far, far + 1)])).total_s - cost.step_time(step([(near, near + 1)])).total_s

    assert extra(whole.name, 10_000, 20_000) == pytest.approx(10_000 * 131_072 / (4.8e12 * 0.8), rel=1e-3)
    # Half of the 24 layers are full: 2 * 8 heads * 64 * 2 bytes each.
    assert extra(windowed.name, 10_000, 20_000) == pytest.approx(10_000 * 12 * 2048 / (4.8e12 * 0.8), rel=1e-3)


def test_weights_that_do_not_fit_are_named() -> None:
    with pytest.raises(ConfigError, match=r"model=llama-3\.1-70b: .* do not fit h100's 80 GB"):
        memory_left(model_of("llama-3.1-70b"), hardware_of("h100"))
    assert memory_left(model_of("llama-3.1-8b"), hardware_of("h100")) == pytest.approx(72e9 - 16.06e9, rel=0.01)
    with pytest.raises(ConfigError, match=r"cost\.hardware='abacus' must be one of"):
        hardware_of("abacus")
    with pytest.raises(ConfigError, match="model='abacus' must be one of"):
        model_of("abacus")


def tables(folder: Path) -> KernelTables:
    (folder / "dense.csv").write_text("layer,tokens,time_us\nqkv_proj,1,10\nqkv_proj,9,90\nlayernorm,1,1\n")
    (folder / "per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,100\nlm_head,3,300\n")
    rows = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    rows += [f"{p},{k},0,0,{p + k}" for p in (2, 4) for k in (0, 8)]
    rows += [f"0,0,{n},{k},{n * k}" for n in (1, 3) for k in (4, 12)]
    rows += [f"{p},{k},{n},{d},{2 * (p + k + n * d)}" for p in (2, 4) for k in (0, 8) for n in (1, 3) for d in (4, 12)]
    (folder / "attention.csv").write_text("\n".join(rows) + "\n")
    return KernelTables.read(folder)


def test_kernels_add_up(tmp_path: Path) -> None:
    cost = TableCost(tables(tmp_path), num_layers=2, host_s=0.5)
    decodes = cost.step_time(step([(7, 8), (7, 8)]))
    # Two layers of 10 * tokens, two norms of 1 each, and 2 * 8 of attention; 100 for each of two heads.
    assert decodes.rank_s == pytest.approx([(2 * (20 + 2 + 16) + 200) * 1e-6])
    assert decodes.host_s == 0.5
    mixed = cost.step_time(step([(7, 8), (4, 7)]))
    assert mixed.rank_s == pytest.approx([(2 * (40 + 2 + 2 * (3 + 4 + 8)) + 200) * 1e-6])


def test_three_decodes_are_padded_to_a_captured_batch(tmp_path: Path) -> None:
    cost = TableCost(tables(tmp_path), num_layers=1, host_s=0.0)
    time = cost.step_time(step([(7, 8)] * 3)).rank_s[0] * 1e6
    assert time == pytest.approx(40 + 2 + 24 + 300)


def test_bad_tables_are_named(tmp_path: Path) -> None:
    tables(tmp_path)
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\nqkv_proj,1,fast\n")
    with pytest.raises(ConfigError, match=r"dense\.csv:2: time_us='fast' must be a number"):
        KernelTables.read(tmp_path)
    (tmp_path / "dense.csv").write_text("layer,tokens\n")
    with pytest.raises(ConfigError, match=r"dense\.csv:1: the header"):
        KernelTables.read(tmp_path)
    with pytest.raises(ConfigError, match=r"attention\.csv: cannot be read"):
        KernelTables.read(tmp_path / "absent")
