"""Real processes serve a real model: the tokens of one rank, and a dead rank is named by all others."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")

from tests.conftest import NEAR_TIE
from tests.runtime.group import serving_program
from tests.runtime.group.ranks import PROMISE_S
from tidegate.request import SamplingParams
from tidegate.runtime import LLM
from tidegate.runtime.group.launch import run_ranks

ROOT = Path(__file__).parents[3]
NUM_RANKS, NUM_REQUESTS = 8, 64
TIE = 1e-3
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "critical",
}


def command(path: Path, count: str) -> list[str]:
    return [sys.executable, "-m", "tests.runtime.group.serving_program", str(path), count]


def test_eight_ranks_produce_the_tokens_of_one(tmp_path: Path, record_property: object) -> None:
    path = tmp_path / "outputs.json"

    outcome = run_ranks(NUM_RANKS, command(path, str(NUM_REQUESTS)), environment=ENVIRONMENT)

    assert outcome.exit_code == 0
    found = json.loads(path.read_text())
    assert len(found) == NUM_REQUESTS
    with LLM(**serving_program.SETTINGS) as llm:
        text = llm._text
        assert text is not None
        prompts = serving_program.prompts(text.encode, NUM_REQUESTS)
        alone = llm.generate(
            prompts,
            SamplingParams(temperature=0.0, logprobs=2),
            max_tokens=serving_program.NEW_TOKENS,
            ignore_eos=True,
        )
    for i, output in enumerate(alone):
        mine, theirs = serving_program.record(output), found[f"r{i}"]
        assert theirs["reason"] == "length"
        if mine["tokens"] != theirs["tokens"]:
            at = next(k for k, (a, b) in enumerate(zip(mine["tokens"], theirs["tokens"], strict=True)) if a != b)  # type: ignore[call-overload]  # lists
            print(NEAR_TIE, f"r{i} at {at}")
            assert mine["gaps"][at] < TIE  # type: ignore[index]  # a list


def test_a_rank_that_is_killed_in_mid_run_is_named_and_nobody_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "outputs.json"
    victim, pids, ended_s = 3, [], []

    def kill(started: list[int]) -> None:
        pids.extend(started)

        def when_running() -> None:
            while not path.exists():
                time.sleep(0.05)
            os.kill(started[victim], signal.SIGKILL)
            ended_s.append(time.monotonic())

        threading.Thread(target=when_running, daemon=True).start()

    outcome = run_ranks(4, command(path, "forever"), environment=ENVIRONMENT, on_start=kill)  # type: ignore[arg-type]  # a list

    assert time.monotonic() - ended_s[0] < PROMISE_S + 5.0
    assert outcome.failures[0].rank == victim
    assert outcome.failures[0].code == -signal.SIGKILL
    assert outcome.stopped == ()  # the others ended by themselves
    assert capfd.readouterr().err.count(f"rank {victim}") >= 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
