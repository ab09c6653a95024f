import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.cli.alphabet_model import Opened


def test_version_is_printed(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert opened.run("--version") == 0

    assert capsys.readouterr().out == f"tidegate {version('tidegate')}\n"


@pytest.mark.parametrize("command", [(), ("generate",), ("bench",)])
def test_help_is_printed(command: tuple[str, ...], opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert opened.run(*command, "--help") == 0

    assert "Usage" in capsys.readouterr().out
    assert not opened.models


def test_help_imports_neither_torch_nor_matplotlib() -> None:
    code = """
import sys
from tidegate.cli import main
main(["bench", "--help"])
sys.exit(bool({"torch", "matplotlib"} & set(sys.modules)))
"""

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
