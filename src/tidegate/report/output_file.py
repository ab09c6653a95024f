"""A file that is written whole or not at all, and refused before the work rather than after it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidegate.base import ConfigError, shown


class OutputFile:
    """Claims a place beside ``path`` at once; ``write`` puts the content there and renames it over ``path``.

    As a context manager it leaves nothing behind when ``write`` was not reached. Raises ``ConfigError`` when the place
    cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise ConfigError(f"cannot write {path}: it is a directory", path=str(path))
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot write {path}: it is a device or pipe, not a file", path=str(path))
        try:
            handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}", path=str(path)) from error
        except ValueError as error:  # a path that is none
            raise ConfigError(f"cannot write {shown(str(path))}: {error}", path=str(path)) from error
        os.close(handle)
        self._temporary: Path | None = Path(name)

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.discard()

    def write(self, content: str | bytes) -> None:
        """Write everything and make it appear under ``path``."""
        if self._temporary is None:
            raise ConfigError(f"{self.path} was already written or discarded")
        data = content.encode() if isinstance(content, str) else content
        try:
            self._temporary.write_bytes(data)
            self._temporary.chmod(0o666 & ~_umask())
            os.replace(self._temporary, self.path)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}", path=str(self.path)) from error
        self._temporary = None

    def discard(self) -> None:
        """Give the place back; idempotent."""
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
