"""Load the engine and the text of a model. Apart, because it needs torch and transformers."""

from __future__ import annotations

from tidegate.engine.reference import DEFAULT_MODEL, EngineOptions, ReferenceEngine, WindowPattern, open_checkpoint
from tidegate.runtime.config import ModelConfig
from tidegate.runtime.text_streams import TextStreams
from tidegate.text import Tokenizer


def load_model(config: ModelConfig) -> tuple[ReferenceEngine, TextStreams]:
    """Open the checkpoint that ``config`` names. Raises ``ConfigError`` when there is none or it cannot be used."""
    windows = None
    if (pattern := config.window()) is not None:
        window, every, sinks = pattern
        windows = WindowPattern(window=window, sink_tokens=sinks, full_every=every)
    options = EngineOptions(kernel=config.kernel, windows=windows, prepack=config.prepack)
    checkpoint = open_checkpoint(config.model or DEFAULT_MODEL, dtype=config.dtype)
    tokenizer = Tokenizer.from_directory(checkpoint.directory)
    return ReferenceEngine.from_checkpoint(checkpoint, options), TextStreams(tokenizer)
