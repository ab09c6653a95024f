"""Ranks as Ray actors, in a network namespace with loopback alone, since Ray listens wherever it can."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUARD_S = 180.0
NAMESPACE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def why_not() -> str:
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed: see requirements/ray.txt"
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        return "no network namespace: unshare is not permitted here"
    return ""


@pytest.mark.slow
def test_actors_hear_each_other_and_name_a_killed_one() -> None:
    if why_not():
        pytest.skip(why_not())
    python_path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"

    ended = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.runtime.group.ray_program", "talk=3", "die=1"],
        env=os.environ | {"PYTHONPATH": python_path, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )

    assert ended.returncode == 0, ended.stderr
    assert "talk=3: 0 () []\n" in ended.stdout
    assert len(re.findall(r"heard ([0-9a-f]{64})", ended.stdout)) == 3
    assert re.search(r"die=1: 1 \(\) \[\(1, 'the actor died", ended.stdout)
    assert ended.stdout.count("'exit code 70'") == 2
    assert all(f"rank {rank}: rank 1 died: the process is gone" in ended.stderr for rank in (0, 2))
    assert "refused: num_ranks=4 must fit the cluster" in ended.stdout
