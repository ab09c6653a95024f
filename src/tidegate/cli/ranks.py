"""The same command on several ranks: who starts them, and whether this process is one. Nothing here imports torch."""

from __future__ import annotations

import os
import sys

import typer

from tidegate.base import RankError, check_integer

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"}


def is_rank() -> bool:
    """Whether a launcher started this process as one of several ranks, as ``torchrun`` does."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_follower() -> bool:
    """Whether this process is a rank, and not rank 0."""
    return is_rank() and os.environ["RANK"] != "0"


def start_ranks(num_ranks: int) -> None:
    """Run this command line again in ``num_ranks`` processes, with one thread each, and wait for all.

    Raises ``RankError`` naming the rank that failed first.
    """
    from tidegate.runtime.group.exchange import MAX_RANKS

    check_integer("--ranks", num_ranks, 1, MAX_RANKS)
    from tidegate.runtime.group.launch import run_ranks  # imports torch, which takes a second

    command = [sys.executable, "-m", "tidegate.cli", *sys.argv[1:]]
    outcome = run_ranks(num_ranks, command, environment={**os.environ, **_ONE_THREAD})
    if outcome.exit_code == 2:
        raise typer.Exit(2)  # its own paragraph says what is wrong
    if outcome.exit_code:
        raise RankError(outcome.text, exit_code=outcome.exit_code)
