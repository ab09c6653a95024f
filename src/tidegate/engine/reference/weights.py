"""Read a model's weights through ``transformers``, and refuse what it would only warn about."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedModel
from transformers.utils import logging

from tidegate.base import ConfigError


def read_weights(directory: Path, dtype: str, gguf_file: str | None = None) -> PreTrainedModel:
    """Load from safetensors, or from a GGUF file of the directory, dequantised.

    Raises ``ConfigError`` when the files are damaged or leave a weight unset. Pickled weights are never read.
    """
    path = directory if gguf_file is None else directory / gguf_file
    shows_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a library has no business on its user's stderr
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            gguf_file=gguf_file,
            quantization_config=None if gguf_file is None else GgufConfig(dequantize=True),
        )
    except MemoryError:
        raise
    except Exception as error:  # a damaged file or an odd configuration breaks transformers in many ways
        raise ConfigError(f"model {path}: its weights cannot be read ({error}); give intact files") from error
    finally:
        if shows_bar:
            logging.enable_progress_bar()
    model, report = cast("tuple[PreTrainedModel, dict[str, set[str]]]", loaded)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ConfigError(f"model {path}: {len(missing)} weights are not in the file, such as {missing[:3]}")
    return model
