"""The process that stands beside us, with a script of our own in a peer's place."""

import sys
from pathlib import Path

import pytest

from benchmarks.case import PeerCall
from benchmarks.peers import PeerPaths, Peers

SCRIPT = """
import sys, types
torch = types.SimpleNamespace(set_num_threads=lambda n: print("noise on stdout"))
def bench_decode(steps, tree, kind, page, nreq):
    if nreq == 13:
        raise RuntimeError("thirteen")
    if nreq == 14:
        sys.exit("gone")
    return [dict(name="decode", median=steps * nreq, page=page)]
"""


@pytest.fixture
def paths(tmp_path: Path) -> PeerPaths:
    python = tmp_path / "venv-sglang" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "bench_sglang_kv.py").write_text(SCRIPT)
    return PeerPaths(tmp_path, tmp_path)


def call(nreq: int) -> PeerCall:
    return PeerCall.of("sglang", "decode", steps=3, page=16, nreq=nreq)


def test_one_process_answers_several_calls(paths: PeerPaths) -> None:
    with Peers(paths) as peers:
        answers = peers.ask_all([call(2), call(5)])
        again = peers.ask_all([call(2)])
        versions = peers.versions

    assert answers[call(5)] == [{"name": "decode", "median": 15, "page": 16}]
    assert versions == ["sglang of unknown version"]
    assert again[call(2)] == answers[call(2)]
    assert peers.complaints == {}


def test_a_failing_call_is_told_and_the_next_one_answered(paths: PeerPaths) -> None:
    with Peers(paths) as peers:
        answers = peers.ask_all([call(13), call(2)])

    assert list(answers) == [call(2)]
    assert peers.complaints == {"sglang decode": "RuntimeError: thirteen"}


def test_a_process_that_ends_is_told_with_its_last_words(paths: PeerPaths) -> None:
    with Peers(paths) as peers:
        assert peers.ask_all([call(14), call(2)]) == {}

    assert "gone" in peers.complaints["sglang decode"]


def test_what_is_not_set_up_is_told(tmp_path: Path) -> None:
    with Peers(PeerPaths(tmp_path, tmp_path)) as peers:
        assert peers.ask_all([call(2)]) == {}

    assert peers.complaints["sglang"].startswith("not set up: no ")


def test_places_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS_HOME", "a")
    monkeypatch.setenv("TIDEGATE_PEERS", "b")

    assert PeerPaths.from_environment() == PeerPaths(Path("a"), Path("b"))
