"""Executors: order whatever the timing, deaths by item, nothing left behind, and equal bytes however many processes."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

from tidegate.base import ConfigError, InternalError
from tidegate.sim import Executor, Lost, SerialExecutor, SimResult, SimSpec, Sweep, make_executor, run_sweep, simulate
from tidegate.sim.process_executor import ProcessExecutor

CELLS = Sweep.from_mapping(
    {
        "base": {
            "num_ranks": 2,
            "cost": {"kind": "linear", "fixed_ms": 10.0, "per_token_us": 5.0},
            "workload": {
                "requests": 12,
                "arrivals": {"kind": "poisson", "rate": 30},
                "input": {"kind": "uniform", "low": 8, "high": 90},
                "output": {"kind": "uniform", "low": 2, "high": 9},
            },
            "settings": {"tokens_per_block": 16, "pool_slots": [40], "max_batch_size": 4, "max_num_tokens": 64},
        },
        "axes": {"settings.pool_slots": [[40], [2], [16]], "seed": [0, 1]},
    }
).cells()


def square(number: int) -> int:
    return number * number


def turn(place: int) -> tuple[int, int]:
    """Answer after one's successor where the successor runs beside: the order of answers is not that of items."""
    folder = Path(os.environ["TIDEGATE_TEST_TURNS"])
    (folder / str(place)).touch()
    while place % 2 == 0 and not (folder / str(place + 1)).exists():
        pass
    return place, os.getpid()


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 3:
        os._exit(7)
    return number


def fail(number: int) -> int:
    raise ZeroDivisionError(f"item {number}")


def threads(_: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def everything(spec: SimSpec) -> SimResult:
    return simulate(spec)


def text(executor: Executor) -> str:
    outcomes = run_sweep(CELLS, everything, executor)
    return json.dumps(
        [
            [outcome.record(), list(outcome.result.request_rows()) if outcome.result is not None else []]
            for outcome in outcomes
        ],
        sort_keys=True,
    )


@pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(2), ProcessExecutor(8)])
def test_results_come_in_the_order_of_items(executor: Executor) -> None:
    seen = list[None]()

    assert list(executor.map(square, list(range(5)), lambda: seen.append(None))) == [0, 1, 4, 9, 16]
    assert len(seen) == 5


def test_no_items_no_processes() -> None:
    assert list(ProcessExecutor(3).map(square, [])) == []


def test_late_answers_do_not_change_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_TEST_TURNS", str(tmp_path))

    answers = list(ProcessExecutor(2).map(turn, list(range(4))))

    assert [answer[0] for answer in answers if not isinstance(answer, Lost)] == [0, 1, 2, 3]
    assert len({answer[1] for answer in answers if not isinstance(answer, Lost)}) == 2


def test_dead_process_loses_its_own_item_only() -> None:
    answers = list(ProcessExecutor(2).map(die, list(range(6))))

    assert answers[::2] == [0, 2, 4]
    assert answers[5] == 5
    assert answers[1] == Lost("the process ended with signal SIGKILL")
    assert answers[3] == Lost("the process ended with exit code 7")
    assert multiprocessing.active_children() == []


def test_what_the_function_raises_ends_everything_and_is_told() -> None:
    with pytest.raises(InternalError, match="ZeroDivisionError: item 0"):
        list(ProcessExecutor(1).map(fail, [0, 1]))
    assert multiprocessing.active_children() == []


def test_leaving_early_leaves_no_process() -> None:
    answers = ProcessExecutor(2).map(square, list(range(100)))
    assert next(answers) == 0

    answers.close()  # type: ignore[attr-defined]  # it is a generator

    assert multiprocessing.active_children() == []


def test_processes_compute_with_one_thread_and_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")

    assert list(ProcessExecutor(1).map(threads, [0])) == ["1"]
    assert os.environ["OMP_NUM_THREADS"] == "5"


def test_lost_cell_is_a_failure_of_that_cell() -> None:
    outcomes = list(run_sweep(CELLS[:2], dying, ProcessExecutor(1)))

    failures = [outcome.failure for outcome in outcomes]
    assert failures[0] is None
    assert failures[1] is not None
    assert (failures[1].kind, failures[1].is_broken) == ("Lost", True)


def dying(spec: SimSpec) -> SimResult:
    if spec.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return simulate(spec)


def test_one_and_two_processes_give_equal_bytes() -> None:
    alone = text(SerialExecutor())

    assert text(ProcessExecutor(2)) == alone
    assert "OutOfPages" in alone or "ConfigError" in alone or "RequestTooLong" in alone
    assert alone.count('"summary"') == 4


@pytest.mark.parametrize(
    ("kind", "jobs", "message"),
    [
        ("serial", 2, "jobs=2 must be 1 with executor='serial'"),
        ("process", 0, "jobs=0 must be an integer"),
        ("threads", 1, r"executor='threads' must be one of \['serial', 'process', 'ray'\]"),
    ],
)
def test_executor_that_cannot_be_is_refused(kind: str, jobs: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_executor(kind, jobs)


def test_missing_ray_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "tidegate.sim.ray_executor", raising=False)

    with pytest.raises(ConfigError, match=r"needs Ray: pip install 'tidegate\[ray\]'"):
        make_executor("ray")


@pytest.mark.slow
def test_ray_gives_the_same_bytes() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: see requirements/ray.txt")

    assert text(make_executor("ray", 2)) == text(SerialExecutor())
