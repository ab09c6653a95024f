"""Peers beside us: finds their environments and scripts, keeps one process of each, asks them in turn."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.case import PeerCall

_HERE = Path(__file__).resolve().parent
_SCRIPTS = {"vllm": "bench_vllm_kv.py", "sglang": "bench_sglang_kv.py", "vllm-scheduler": "bench_vllm_sched.py"}
_ENVIRONMENTS = {"vllm": "venv-vllm", "sglang": "venv-sglang", "vllm-scheduler": "venv-vllm"}

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PeerPaths:
    """Where the peers' environments and the scripts that measure them lie."""

    home: Path
    scripts: Path

    @classmethod
    def from_environment(cls) -> PeerPaths:
        """Read ``PEERS_HOME`` and ``TIDEGATE_PEERS``, or take the usual places."""
        home = os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "tidegate-peers"
        scripts = os.environ.get("TIDEGATE_PEERS") or _HERE.parents[1] / "shared" / "peers"
        return cls(Path(home), Path(scripts))

    def python(self, peer: str) -> Path:
        """Path of the peer's own interpreter."""
        return self.home / _ENVIRONMENTS[peer] / "bin" / "python"

    def script(self, peer: str) -> Path:
        """Path of the script that measures the peer."""
        return self.scripts / _SCRIPTS[peer]


@dataclass(slots=True)
class _Process:
    child: subprocess.Popen[str]
    errors: IO[bytes]
    version: str = ""

    def ask(self, call: PeerCall) -> Rows | str:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"call": call.call, "arguments": dict(call.arguments)}) + "\n")
            self.child.stdin.flush()
            answer = self._answer()
            if "version" in answer:
                self.version = answer["version"]
                answer = self._answer()
        except (BrokenPipeError, EOFError):
            return f"the process ended: {self._last_words()}"
        return answer["rows"] if "rows" in answer else str(answer["error"])

    def _answer(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let it read the end of its input; a process that does not end by itself is killed."""
        assert self.child.stdin is not None and self.child.stdout is not None
        with suppress(BrokenPipeError):  # it may have ended before
            self.child.stdin.close()
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
        self.errors.close()

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


@dataclass(slots=True)
class Peers:
    """The peers that are set up. What is absent or fails answers ``None``; ``complaints`` says why, once each."""

    paths: PeerPaths
    complaints: dict[str, str] = field(default_factory=dict)
    _processes: dict[str, _Process] = field(default_factory=dict)

    @property
    def versions(self) -> list[str]:
        """Package and version of each peer that has answered."""
        return sorted({process.version for process in self._processes.values() if process.version})

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def ask_all(self, calls: Iterable[PeerCall]) -> dict[PeerCall, Rows]:
        """Make each call once; calls that got no answer are left out."""
        answers = {}
        for call in calls:
            process = self._process(call.peer)
            rows = process.ask(call) if process else None
            if isinstance(rows, list):
                answers[call] = rows
            elif rows is not None:
                self.complaints[f"{call.peer} {call.call}"] = rows
        return answers

    def _process(self, peer: str) -> _Process | None:
        if peer in self._processes:
            return self._processes[peer]
        missing = [path for path in (self.paths.python(peer), self.paths.script(peer)) if not path.exists()]
        if missing:
            self.complaints[peer] = f"not set up: no {missing[0]}"
            return None
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        child = subprocess.Popen(
            [self.paths.python(peer), _HERE / "peer_driver.py", self.paths.script(peer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}},
        )
        self._processes[peer] = _Process(child, errors)
        return self._processes[peer]
