"""Every room has a door: ``__init__`` with an ``__all__`` that keeps its word."""

import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tidegate"
ROOMS = sorted(init.parent.name for init in SOURCE.glob("*/__init__.py"))


def missing_names(module: str) -> list[str]:
    """Names that ``module.__all__`` promises and the module lacks; all of it when there is no ``__all__``."""
    door = importlib.import_module(module)
    if not hasattr(door, "__all__"):
        return ["__all__"]
    return [name for name in door.__all__ if not hasattr(door, name)]


def test_every_folder_with_code_has_a_door() -> None:
    assert [str(path) for path in SOURCE.rglob("*.py") if not path.with_name("__init__.py").exists()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_door_exports_what_it_promises(room: str) -> None:
    assert missing_names(f"tidegate.{room}") == []


def test_broken_promise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_room.py").write_text("__all__ = ['there', 'gone']\nthere = 1\n")
    (tmp_path / "planted_wall.py").write_text("there = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert missing_names("planted_room") == ["gone"]
    assert missing_names("planted_wall") == ["__all__"]
