"""What may be in the tree: no rooms for leftovers, and no path that exists on one machine only."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFTOVERS = {"utils", "util", "common", "helpers", "helper", "misc"}
MACHINE_PATH = re.compile(r"(?<![\w.$}<-])/(?:work|farm|root|home|Users)/\w")


def leftover_rooms(directory: Path) -> list[str]:
    """Modules and packages named for nothing in particular."""
    return sorted(str(path) for path in directory.rglob("*") if path.stem in LEFTOVERS)


def machine_paths(files: Iterable[Path]) -> list[str]:
    """Lines that hold an absolute path of somebody's machine. Files that are not text are skipped."""
    found = []
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path}:{i}: {line.strip()}" for i, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    return found


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_module_is_named_for_leftovers() -> None:
    assert [name for folder in ("src", "tests", "benchmarks") for name in leftover_rooms(ROOT / folder)] == []


def test_no_tracked_file_names_a_machine_path() -> None:
    assert machine_paths(tracked_files()) == []


@pytest.mark.parametrize("name", ["utils.py", "helpers/__init__.py", "cache/misc.py"])
def test_planted_leftovers_are_found(name: str, tmp_path: Path) -> None:
    planted = tmp_path / name
    planted.parent.mkdir(exist_ok=True)
    planted.touch()

    assert len(leftover_rooms(tmp_path)) == 1


def test_planted_machine_path_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.md"
    planted.write_text("see https://example.org/work/x and ./work/y\nrun /" + "work/z/run.sh\n")
    (tmp_path / "weights.bin").write_bytes(b"\xff\xfe/")

    (found,) = machine_paths([planted, tmp_path / "weights.bin"])

    assert found.startswith(f"{planted}:2: ")
