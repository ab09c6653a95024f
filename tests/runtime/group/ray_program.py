"""A Ray driver for tests: runs ``rank_program`` on three actors for each ACTION=ARGUMENT, and prints the outcomes."""

from __future__ import annotations

import sys

import ray

from tidegate.base import ConfigError
from tidegate.runtime.group.ray_launch import run_ranks_on_ray

NUM_RANKS = 3
ENTRY = "tests.runtime.group.rank_program:main"


def main(actions: list[str]) -> None:
    """Start Ray once for all actions."""
    ray.init(include_dashboard=False, num_cpus=NUM_RANKS)
    try:
        for action in actions:
            outcome = run_ranks_on_ray(NUM_RANKS, ENTRY, action.split("="))
            print(f"{action}: {outcome.exit_code} {outcome.stopped} {[(f.rank, f.how) for f in outcome.failures]}")
        try:
            run_ranks_on_ray(NUM_RANKS + 1, ENTRY, placing_s=0.5)
        except ConfigError as error:
            print(f"refused: {error}")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
