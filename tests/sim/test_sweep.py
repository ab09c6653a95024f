"""Sweeps: which runs there are, what is refused before any of them, and what becomes of one that fails."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.base import ConfigError, InternalError, OutOfPages
from tidegate.sim import SerialExecutor, SimResult, SimSpec, Sweep, run_sweep

TINY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "cost": {"kind": "linear", "fixed_ms": 10.0, "per_token_us": 5.0},
    "workload": {"requests": 4, "arrivals": "at_once", "input": 40, "output": 5},
    "settings": {"tokens_per_block": 16, "pool_slots": [64], "max_batch_size": 8},
}


def names(sweep: Sweep) -> list[str]:
    return [cell.name for cell in sweep.cells()]


def test_settings_of_one_run_are_a_sweep_of_one() -> None:
    (cell,) = Sweep.from_mapping(TINY).cells()

    assert (cell.name, cell.values, cell.mapping) == ("run", (), TINY)


def test_axes_are_multiplied_and_the_last_changes_fastest() -> None:
    sweep = Sweep.from_mapping({"base": TINY, "axes": {"seed": [0, 1], "cost.per_token_us": [5, 7.5]}})

    assert names(sweep) == [
        "seed=0, cost.per_token_us=5",
        "seed=0, cost.per_token_us=7.5",
        "seed=1, cost.per_token_us=5",
        "seed=1, cost.per_token_us=7.5",
    ]
    assert [(c.index, c.mapping["seed"], c.mapping["cost"]["per_token_us"]) for c in sweep.cells()][3] == (3, 1, 7.5)
    assert sweep.cells()[0].mapping["cost"]["fixed_ms"] == 10.0


def test_zipped_settings_go_along_together() -> None:
    zipped = {"num_ranks": [1, 2], "workload.requests": [4, 8]}
    sweep = Sweep.from_mapping({"base": TINY, "axes": {"seed": [0, 1]}, "zip": [zipped]})

    assert names(sweep) == [
        f"seed={seed}, num_ranks={ranks}, workload.requests={4 * ranks}" for seed in (0, 1) for ranks in (1, 2)
    ]


def test_path_makes_what_is_missing_and_reaches_into_lists() -> None:
    axes = {"settings.attention_dp_config.timeout_iters": [3], "settings.pool_slots.0": [9]}
    (cell,) = Sweep.from_mapping({"base": TINY, "axes": axes}).cells()

    assert cell.mapping["settings"]["attention_dp_config"] == {"timeout_iters": 3}
    assert cell.mapping["settings"]["pool_slots"] == [9]


def test_cells_share_nothing() -> None:
    sweep = Sweep.from_mapping({"base": TINY, "axes": {"settings": [{"max_batch_size": 1}], "seed": [1, 2]}})
    first, second = sweep.cells()

    first.mapping["settings"]["max_batch_size"] = 99
    first.mapping["workload"]["requests"] = 99

    assert second.mapping["settings"] == {"max_batch_size": 1}
    assert second.mapping["workload"] == TINY["workload"]
    assert sweep.cells()[0].mapping["settings"] == {"max_batch_size": 1}


def test_values_stand_above_the_base_but_not_above_axes() -> None:
    sweep = Sweep.from_mapping({"base": TINY, "axes": {"seed": [0, 1]}})

    assert {c.mapping["workload"]["input"] for c in sweep.with_values({"workload.input": 7}).cells()} == {7}
    with pytest.raises(ConfigError, match=r"seed=3: the sweep sets seed itself"):
        sweep.with_values({"seed": 3})
    assert names(sweep.with_axis("seed", [5])) == ["seed=5"]


LOOP: dict[str, Any] = {}
LOOP["workload"] = LOOP


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (["run"], r"sweep=\['run'\] must be a mapping"),
        ({"base": TINY, "axes": {"workloads.rate": [1]}}, r"workloads.rate: no such setting"),
        ({"base": TINY, "axes": {"cost.speed": [1]}}, r"cost.speed: no such setting; legal are \['cost.kind'"),
        ({"base": TINY, "axes": {"seed.deep": [1]}}, r"seed.deep: seed has no settings of its own"),
        ({"base": TINY, "axes": {"settings..x": [1]}}, r"'settings..x' must be a dotted path"),
        ({"base": TINY, "axes": {"seed": 1}}, r"axes: seed=1 must be a list of at least one value"),
        ({"base": TINY, "axes": {"seed": []}}, r"axes: seed=\[\] must be a list of at least one value"),
        ({"base": TINY, "axes": {"seed": [1, 1]}}, r"axes: seed has the value 1 twice"),
        ({"base": TINY, "axes": {"seed": [1, float("nan")]}}, r"axes.seed.1=nan must be a finite number"),
        ({"base": {"speed": 1}, "axes": {"seed": [1]}}, r"speed: no such setting; a path must begin with"),
        ({"base": TINY, "axis": {}}, r"axis: a sweep has only 'base', 'axes' and 'zip'"),
        ({"base": TINY, "zip": {"seed": [1]}}, r"zip=\{'seed': \[1\]\} must be a list of mappings"),
        ({"base": TINY, "zip": [{"seed": [1, 2], "num_ranks": [1]}]}, r"equally long, not \{'seed': 2, 'num_ranks': 1"),
        ({"base": TINY, "zip": [{"seed": [1]}], "axes": {"seed": [2]}}, r"seed and seed: two axes"),
        ({"base": TINY, "axes": {"cost": [{}], "cost.kind": ["linear"]}}, r"two axes must not set the same"),
        ({"base": TINY, "axes": {"seed": list(range(200)), "num_ranks": list(range(200))}}, r"40000 runs must be"),
        ({"base": {1: 2}}, r"sweep.base: the name 1 must be a non-empty string"),
        (LOOP, r"settings must hold at most"),
    ],
)
def test_bad_sweep_is_refused_by_name(mapping: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep.from_mapping(mapping)


def test_list_that_unfolds_without_end_is_refused() -> None:
    bomb: list[Any] = ["x"] * 10
    for _ in range(10):
        bomb = [bomb] * 10

    with pytest.raises(ConfigError, match="settings must hold at most"):
        Sweep.from_mapping({"workload": {"input": bomb}})


def test_path_through_a_value_is_refused() -> None:
    sweep = Sweep.from_mapping({"base": TINY, "axes": {"workload.arrivals.rate": [5]}})

    with pytest.raises(ConfigError, match=r"workload.arrivals.rate: workload.arrivals='at_once' has no 'rate' to set"):
        sweep.cells()


def failing(spec: SimSpec) -> SimResult:
    errors = [ConfigError("bad"), OutOfPages("short"), InternalError("ours"), MemoryError("full")]
    raise errors[spec.seed]


def test_failures_are_rows_and_breakage_is_told_from_refusal() -> None:
    cells = Sweep.from_mapping({"base": TINY, "axes": {"seed": [0, 1, 2, 3, -1]}}).cells()

    outcomes = list(run_sweep(cells, failing, SerialExecutor()))

    failures = [outcome.failure for outcome in outcomes]
    assert [(f.kind, f.message, f.is_broken) for f in failures if f is not None][:4] == [
        ("ConfigError", "bad", False),
        ("OutOfPages", "short", False),
        ("InternalError", "ours", True),
        ("MemoryError", "full", True),
    ]
    assert failures[4] is not None and "seed=-1 must be an integer" in failures[4].message
    assert outcomes[1].record()["failure"] == {"kind": "OutOfPages", "message": "short"}
    assert "summary" not in outcomes[1].record()


def test_what_nobody_expects_is_not_swallowed() -> None:
    cells = Sweep.from_mapping({"base": TINY, "axes": {"seed": [7, 8]}}).cells()

    with pytest.raises(IndexError):
        list(run_sweep(cells, failing, SerialExecutor()))
