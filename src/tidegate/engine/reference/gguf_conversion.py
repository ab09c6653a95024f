"""GGUF to a Hugging Face directory, dequantised, once per file and dtype.

The result is written aside and renamed into place, so a cached directory is whole or absent.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import struct
import tempfile
from pathlib import Path

from gguf import GGUFReader
from transformers import AutoTokenizer

from tidegate.base import ConfigError
from tidegate.engine.reference.architectures import check_architecture
from tidegate.engine.reference.weights import read_weights

_LOG = logging.getLogger(__name__)
_HEADER = struct.Struct("<4sIQQ")
_VERSIONS = (2, 3)
_FORMAT = 1
"""Raised when what a conversion writes changes, so that old cached directories are not taken."""


def convert_gguf(path: Path, dtype: str, cache: Path, *, sha256: str | None = None) -> Path:
    """Return the directory converted from ``path``, making it on first use. ``sha256`` is checked then."""
    target = cache / "models" / _key(path, dtype, sha256)
    if target.is_dir():
        return target
    _check_file(path, sha256)
    _LOG.info("converting %s to %s safetensors in %s; later starts reuse it", path, dtype, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"cache {cache}: cannot be written ({error}); set TIDEGATE_CACHE elsewhere") from error
    try:
        _write_directory(path, dtype, aside)
        _publish(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _key(path: Path, dtype: str, sha256: str | None) -> str:
    """Name the conversion by what the file must contain, the same wherever it is installed, or else by its identity:
    hashing its content would cost every start a full read."""
    stat = path.stat()
    content = sha256 or f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    identity = f"{_FORMAT}|{content}|{dtype}"
    return f"{path.stem}-{dtype}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _check_file(path: Path, sha256: str | None) -> None:
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if header[:4] != b"GGUF":
            raise ConfigError(f"model {path}: not a GGUF file (it starts with {header[:4]!r}, not b'GGUF')")
        if len(header) < _HEADER.size:
            raise ConfigError(f"model {path}: truncated GGUF, {len(header)} bytes are not even a header")
        version = _HEADER.unpack(header)[1]
        if version not in _VERSIONS:
            raise ConfigError(f"model {path}: GGUF version {version} is not supported; supported: {_VERSIONS}")
        if sha256 is not None:
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                raise ConfigError(f"model {path}: sha256 is {found}, expected {sha256}; reinstall the package")
    try:
        tensors = len(GGUFReader(path).tensors)
    except Exception as error:  # the reader trusts every number in the file
        raise ConfigError(f"model {path}: truncated or damaged GGUF ({error}); fetch the file again") from error
    if tensors == 0:
        raise ConfigError(f"model {path}: the GGUF file holds no tensors (a vocabulary only?)")


def _write_directory(path: Path, dtype: str, directory: Path) -> None:
    model = read_weights(path.parent, dtype, gguf_file=path.name)
    check_architecture(model.config)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for bad vocabularies
        raise ConfigError(f"model {path}: transformers cannot read its tokenizer: {error}") from error
    try:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    except OSError as error:
        raise ConfigError(f"cache {directory.parent}: cannot be written ({error})") from error


def _publish(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        # Another process converted the same file meanwhile; its directory is as good as ours.
        if not target.is_dir():
            raise
