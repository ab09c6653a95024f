import os
from pathlib import Path

import pytest

from tidegate.base import ConfigError
from tidegate.report import OutputFile


def test_nothing_appears_before_write_and_nothing_stays_without_it(tmp_path: Path) -> None:
    target = tmp_path / "out.json"

    with pytest.raises(RuntimeError), OutputFile(target):
        assert not target.exists()
        raise RuntimeError

    assert list(tmp_path.iterdir()) == []


def test_write_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("something older and longer")

    with OutputFile(target) as output:
        output.write("new")

    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_older_file_survives_a_failed_run(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("older")

    with pytest.raises(RuntimeError), OutputFile(target):
        raise RuntimeError

    assert target.read_text() == "older"


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out.png") as output:
        output.write(b"\x89PNG")

    assert (tmp_path / "out.png").read_bytes() == b"\x89PNG"


def test_a_place_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*out\.json"):
        OutputFile(tmp_path / "missing" / "out.json")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        OutputFile(tmp_path)


def test_writing_twice_is_refused(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "out.json")
    output.write("once")

    with pytest.raises(ConfigError, match="already written"):
        output.write("twice")


def test_a_device_is_no_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(ConfigError, match="not a file"):
            OutputFile(place)
    assert not Path(os.devnull).is_file()


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        OutputFile(tmp_path / "a\0b")
