"""Files of one folder that are claimed together before the work and written together after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tidegate.base import ConfigError, shown
from tidegate.report.output_file import OutputFile


class OutputFolder:
    """Makes ``path`` if it is missing, and claims a place for each of ``names`` there.

    As a context manager it leaves nothing behind when ``write`` was not reached. Files of other names stay as they are.
    Raises ``ConfigError`` when a file cannot be written there.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self._made = self._make()
        self._stack = ExitStack()
        self._files: dict[str, OutputFile] = {}
        try:
            for name in names:
                self._files[name] = self._stack.enter_context(OutputFile(path / name))
        except ConfigError:
            self.discard()
            raise

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.discard()

    def write(self, contents: Mapping[str, str | bytes]) -> None:
        """Write files that were claimed, each whole. They are rendered before the first one appears."""
        for name, content in contents.items():
            self._files[name].write(content)
        self._made = []

    def discard(self) -> None:
        """Give back what was not written; idempotent."""
        self._stack.close()
        for folder in self._made:
            with suppress(OSError):  # somebody else has put something there
                folder.rmdir()
        self._made = []

    def _make(self) -> list[Path]:
        """Make the folder, and return what was made, innermost first."""
        try:
            missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {self.path}: {error.strerror}", path=str(self.path)) from error
        except ValueError as error:  # a path that is none
            raise ConfigError(f"cannot make the folder {shown(str(self.path))}: {error}") from error
        return missing
