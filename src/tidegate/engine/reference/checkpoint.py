"""From what a user names to a directory with configuration, safetensors and tokenizer, and from there to a model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig, PreTrainedModel

from tidegate.base import ConfigError, shown
from tidegate.engine.reference.architectures import check_architecture
from tidegate.engine.reference.gguf_conversion import convert_gguf
from tidegate.engine.reference.options import DTYPES
from tidegate.engine.reference.packaged_model import DEFAULT_MODEL, SMOLLM2_SHA256, packaged_gguf
from tidegate.engine.reference.weights import read_weights

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_LEGAL = f"a Hugging Face directory (config.json and *.safetensors), a .gguf file, or {DEFAULT_MODEL!r}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory in Hugging Face layout, checked to hold a supported model, and the dtype to load it in."""

    directory: Path
    dtype: str


def default_cache() -> Path:
    """Return where converted models and built kernels are kept: ``$TIDEGATE_CACHE`` or ``~/.cache/tidegate``."""
    return Path(os.environ.get("TIDEGATE_CACHE") or Path.home() / ".cache" / "tidegate")


def open_checkpoint(
    source: str | Path = DEFAULT_MODEL, *, dtype: str = "float32", cache: Path | None = None
) -> Checkpoint:
    """Find the model, converting a GGUF file once. Raises ``ConfigError`` saying what is wrong and what is legal."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype={dtype!r} is not one of {DTYPES}")
    root = cache or default_cache()
    if str(source) == DEFAULT_MODEL:
        return Checkpoint(convert_gguf(packaged_gguf(), dtype, root, sha256=SMOLLM2_SHA256), dtype)
    try:
        path = Path(source).expanduser()
        os.fspath(path).encode()
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"model {shown(str(source))}: cannot be opened ({error}); give {_LEGAL}") from error
    if path.is_dir():
        _check_directory(path)
        return Checkpoint(path, dtype)
    if path.suffix.lower() in _PICKLES:
        raise ConfigError(f"model {path}: pickled weights can run code when loaded and are never read; give {_LEGAL}")
    if not path.is_file():
        raise ConfigError(f"model {shown(str(source))}: there is no such file or directory; give {_LEGAL}")
    return Checkpoint(convert_gguf(path, dtype, root), dtype)


def load_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """Load the weights. Raises ``ConfigError`` when the files are damaged or leave a weight unset."""
    return read_weights(checkpoint.directory, checkpoint.dtype)


def _check_directory(path: Path) -> None:
    names = sorted(p.name for p in path.iterdir())
    if "config.json" not in names:
        ggufs = [n for n in names if n.endswith(".gguf")]
        hint = f"; did you mean the file {path / ggufs[0]}?" if ggufs else f"; give {_LEGAL}"
        raise ConfigError(f"model {path}: the directory has no config.json{hint}")
    if not any(n.endswith(".safetensors") for n in names):
        pickles = [n for n in names if n.endswith(_PICKLES)]
        found = f"only pickled weights ({pickles[0]}), which are never read" if pickles else "no weights"
        raise ConfigError(f"model {path}: the directory has {found}; it must hold *.safetensors files")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever transformers makes of a field it did not expect
        raise ConfigError(f"model {path}: its config.json cannot be used: {error}") from error
    try:
        check_architecture(config)
    except ConfigError as error:
        raise ConfigError(f"model {path}: {error}") from error
