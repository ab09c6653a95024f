"""Processes as the kernel knows them: the quickest word on whether a rank of the same machine is alive."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_START_TICKS = 19
"""Place of the start time in ``/proc/PID/stat`` after the command's name, which may itself contain blanks."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What tells a process from all others: ``host`` (boot and process namespace), number, and start time."""

    host: str
    pid: int
    start_ticks: int

    @classmethod
    def of_this_process(cls) -> ProcessFacts:
        """Read the facts of the running process."""
        pid = os.getpid()
        return cls(_host(), pid, _start_ticks(pid))

    def to_text(self) -> str:
        """Write it for the store."""
        return json.dumps([self.host, self.pid, self.start_ticks])

    @classmethod
    def from_text(cls, text: bytes) -> ProcessFacts:
        """Read what ``to_text`` wrote."""
        host, pid, start_ticks = json.loads(text)
        return cls(host, pid, start_ticks)

    def is_visible(self) -> bool:
        """Return whether the process runs where this one does, so that the kernel can be asked about it."""
        return self.host == _host()

    def open(self) -> int:
        """Return a descriptor that becomes readable when the process ends; ``ProcessLookupError`` when it has."""
        descriptor = os.pidfd_open(self.pid)
        try:
            if _start_ticks(self.pid) == self.start_ticks:
                return descriptor
        except (FileNotFoundError, ProcessLookupError):
            pass
        os.close(descriptor)
        raise ProcessLookupError(f"process {self.pid} is gone")


def _host() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"


def _start_ticks(pid: int) -> int:
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TICKS])
