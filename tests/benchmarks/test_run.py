import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.case import Case, PeerCall, Versus
from benchmarks.peers import PeerPaths, Peers

CALL = PeerCall.of("vllm", "decode", steps=1, block=32, nreq=2)


def case(value: float, limit: float | None, versus: tuple[Versus, ...] = ()) -> Case:
    return Case(
        bar="P9",
        what="work",
        unit="µs",
        limit=limit,
        sample=lambda: [value],
        name="work",
        keys={"block": 4},
        versus=versus,
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def go(cases: list[Case], *arguments: object) -> int:
        monkeypatch.setattr(run, "BARS", {"P9": lambda: cases})
        return run.main(["P9", *map(str, arguments)])

    return go


def test_json_is_a_list_of_records(measured: Callable[..., int], tmp_path: Path) -> None:
    assert measured([case(3.0, 5.0)], "--json", tmp_path / "out.json") == 0

    assert json.loads((tmp_path / "out.json").read_text()) == [
        {"bar": "P9", "what": "work", "value": 3.0, "unit": "µs", "limit": 5.0, "holds": True, "peers": None}
    ]


def test_out_has_the_peers_form_in_nanoseconds(measured: Callable[..., int], tmp_path: Path) -> None:
    assert measured([case(3.0, 5.0)], "--out", tmp_path / "out.json", "--rounds", 2) == 0

    written = json.loads((tmp_path / "out.json").read_text())
    assert written["peer"] == "tidegate"
    assert written["results"] == [{"name": "work", "median": 3000.0, "min": 3000.0, "max": 3000.0, "n": 2, "block": 4}]


def test_out_holds_slots_by_the_peers_name_and_no_ratios(measured: Callable[..., int], tmp_path: Path) -> None:
    slots = Case("P9", "peak", "slots", 5.0, sample=lambda: [5.0], name="swa_peak")
    ratio = Case("P9", "growth", "x", 2.0, sample=lambda: [1.0], name="growth")

    assert measured([slots, ratio], "--out", tmp_path / "out.json") == 0

    assert json.loads((tmp_path / "out.json").read_text())["results"] == [{"name": "swa_peak", "swa_peak_blocks": 5}]


@pytest.mark.parametrize(("value", "code", "says"), [(3.0, 0, "every bar holds"), (6.0, 1, "P9 work: 6 µs, limit 5")])
def test_check_names_what_is_missed(
    value: float, code: int, says: str, measured: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured([case(value, 5.0)], "--check") == code

    assert says in capsys.readouterr().out


def test_without_check_a_miss_is_only_shown(measured: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert measured([case(6.0, 5.0)]) == 0

    assert "MISSED" in capsys.readouterr().out


def test_a_case_without_a_limit_is_only_measured(measured: Callable[..., int]) -> None:
    assert measured([case(6.0, None)], "--check") == 0


def test_unknown_bars_are_refused() -> None:
    with pytest.raises(SystemExit) as refused:
        run.main(["P99"])

    assert refused.value.code == 2


def test_absent_peers_are_said_and_do_not_count(
    measured: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEERS_HOME", str(tmp_path / "nowhere"))
    versus = (Versus((CALL,), ("decode_step_alloc",), 30.0),)

    assert measured([case(3.0, 5.0, versus)], "--peers", "--check", "--json", tmp_path / "out.json") == 0

    assert "peer vllm: not set up" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())[0]["peers"] is None


class AnsweringPeers(Peers):
    def ask_all(self, calls: object) -> dict[PeerCall, list[dict[str, object]]]:
        return {CALL: [{"name": "decode_step_alloc", "median": 60_000.0}, {"name": "other", "median": 1.0}]}


@pytest.mark.parametrize(("reach", "misses"), [(20.0, []), (21.0, ["20.00x against vllm, must reach 21x"])])
def test_ratios_are_held_against_what_they_must_reach(reach: float, misses: list[str], tmp_path: Path) -> None:
    peers = AnsweringPeers(PeerPaths(tmp_path, tmp_path))

    (result,) = run.measure([case(3.0, 5.0, (Versus((CALL,), ("decode_step_alloc",), reach),))], 3, peers)

    assert result.misses == misses
    assert result.record()["peers"]["vllm"]["value"] == 60.0
    assert len(result.samples) == 3
