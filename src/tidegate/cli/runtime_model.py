"""The served model that the commands open by default: the runtime around the reference engine. Imports torch."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidegate.base import Clock, ConfigError, Int32Array, OutOfPages, SystemClock
from tidegate.bench import TargetStatistics
from tidegate.cli.page_meter import MeteredEngine
from tidegate.cli.settings import FULL_EVERY, ModelSettings
from tidegate.engine.reference import DEFAULT_MODEL, open_checkpoint
from tidegate.request import Request, TokenDelta, token_array
from tidegate.runtime import RuntimeConfig, build_manager, build_session
from tidegate.runtime.model import load_model
from tidegate.runtime.text_streams import TextStreams


class RuntimeModel:
    """A session of the runtime whose engine is metered."""

    def __init__(self, engine: MeteredEngine, text: TextStreams, config: RuntimeConfig, clock: Clock) -> None:
        manager = build_manager(engine, config)
        self._meter = engine.watch(manager)
        self._session = build_session(engine, manager, config, text=text, clock=clock)
        self._text = text
        self._vocab_size = engine.vocab_size

    @classmethod
    def open(cls, settings: ModelSettings) -> RuntimeModel:
        """Load the model that the settings name; ``ConfigError`` says what is wrong with them."""
        context = model_context(settings)
        if settings.attention == "hybrid" and settings.window > context:
            raise ConfigError(
                f"--window {settings.window} is larger than the model's context of {context} tokens",
                window=settings.window,
                context=context,
            )
        config = runtime_config(settings, context)
        engine, text = load_model(config.model)
        clock = SystemClock()
        return cls(MeteredEngine(engine, clock), text, config, clock)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._vocab_size

    def encode(self, text: str, *, chat: bool) -> Int32Array:
        """Turn text into token ids, as a user's turn of the model's chat template if asked."""
        return encode(self._text, text, chat=chat)

    def submit(self, request: Request) -> None:
        """Queue a request whose tokens are wanted as they come."""
        self._session.submit(request, stream=True)

    def step(self) -> Sequence[TokenDelta]:
        """Run one step. Raises ``OutOfPages`` when nothing can go on."""
        deltas = self._session.step()
        stall = self._session.stall
        if stall is not None:
            raise OutOfPages(str(stall), request_id=stall.wait.request_id, shortage=stall.wait.shortage)
        return deltas

    def rest(self, most_s: float | None) -> None:
        """Wait while the session has a timer and nothing else to do."""
        self._session.rest(most_s)

    def statistics(self) -> TargetStatistics:
        """Return what the meter counted."""
        return self._meter.statistics(self._session.statistics().suspended)


def encode(streams: TextStreams, text: str, *, chat: bool) -> Int32Array:
    """Turn text into token ids, as a user's turn of the model's chat template if asked."""
    if chat:
        return token_array(streams.encode_chat([{"role": "user", "content": text}]))
    return token_array(streams.encode(text))


def model_context(settings: ModelSettings) -> int:
    """Return how many tokens the model was made for."""
    checkpoint = open_checkpoint(settings.model or DEFAULT_MODEL, dtype=settings.dtype)
    record = json.loads((checkpoint.directory / "config.json").read_text(encoding="utf-8"))
    context = record.get("max_position_embeddings") or record.get("text_config", {}).get("max_position_embeddings")
    if not isinstance(context, int):
        raise ConfigError(f"model {checkpoint.directory}: its config.json does not say max_position_embeddings")
    return context


def runtime_config(settings: ModelSettings, context: int) -> RuntimeConfig:
    """Translate the flags into the runtime's names."""
    hybrid = f"window:{settings.window}:{FULL_EVERY}:{settings.sinks}"
    return RuntimeConfig.from_settings(
        {
            "model": settings.model,
            "dtype": settings.dtype,
            "attention": hybrid if settings.attention == "hybrid" else "model",
            "device_bytes": settings.kv_cache_memory_bytes,
            "max_seq_len": context,
            "tokens_per_block": settings.block_size,
            "swa_scratch_reuse": settings.scratch,
            "max_num_tokens": settings.chunk_size,
            "max_batch_size": settings.max_sequences,
            "seed": settings.seed,
            **settings.overrides,
        }
    )
