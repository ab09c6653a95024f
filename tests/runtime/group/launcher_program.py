"""A launcher for tests: runs ranks that wait for ever, and prints their process numbers."""

from __future__ import annotations

import sys

from tidegate.runtime.group.launch import run_ranks

WAITING = [sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"]

if __name__ == "__main__":
    run_ranks(2, WAITING, on_start=lambda pids: print(*pids, flush=True))
