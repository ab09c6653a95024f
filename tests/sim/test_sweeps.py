"""Sweeps end in the same bytes whatever computes them, and replays stay below their bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.workload import sample_path

EXAMPLES = Path(__file__).parents[2] / "examples"


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_process_or_two_write_the_same_bytes(tmp_path: Path) -> None:
    for jobs in ("1", "2"):
        assert main(["sim", str(EXAMPLES / "sweep.yaml"), "--jobs", jobs, "--out", str(tmp_path / jobs)]) == 0
    one, two = written(tmp_path / "1"), written(tmp_path / "2")
    assert one.keys() == two.keys()
    assert len(one) > 1
    assert one == two


def test_replay_prints_a_row_for_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(sample_path("mooncake"))
    assert main(["replay", trace, "--format", "mooncake", "--pool-blocks", "8,16", "--block-tokens", "512"]) == 0
    shown = capsys.readouterr().out
    assert "lru" in shown
    assert "fifo" in shown


def test_a_wrong_field_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sim.yaml"
    path.write_text("model: llama-3.1-8b\nspeed: 3\n")
    assert main(["sim", str(path)]) == 2
    assert "speed" in capsys.readouterr().err
