"""Cache layers of a Hugging Face decoder, read from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.base import BufferSpec, ConfigError, LayerSpec, check_integer, shown

_MOST = (1 << 31) - 1
_MOST_LAYERS = 1 << 16
_WORDS = {
    "full_attention": "full_attention",
    "attention": "full_attention",
    "sliding_attention": "sliding_attention",
    "window_attention": "sliding_attention",
    "linear_attention": "linear_attention",
    "conv": "conv",
}


@dataclass(frozen=True, slots=True)
class ModelCacheOptions:
    """``dtype_bytes`` per cached number; ``sink_tokens`` kept by windowed layers."""

    dtype_bytes: int = 2
    sink_tokens: int = 0

    def __post_init__(self) -> None:
        check_integer("dtype_bytes", self.dtype_bytes, 1, 16)
        check_integer("sink_tokens", self.sink_tokens, 0, _MOST)


def layers_of_model(model_config: Mapping[str, object] | object, options: ModelCacheOptions) -> tuple[LayerSpec, ...]:
    """Return one ``LayerSpec`` per decoder layer, in the config's own ``layer_types`` words.

    Raises ``ConfigError`` naming the field for a config without the numbers a cache needs, or with a layer kind whose
    cache this version cannot lay out.
    """
    config = _Fields(model_config)
    num_layers = config.integer("num_hidden_layers")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", heads)
    head_dim = config.integer("head_dim", config.integer("hidden_size", 0) // max(heads, 1))
    if head_dim < 1:
        raise ConfigError("head_dim: absent, and hidden_size / num_attention_heads does not give it")
    entry = kv_heads * head_dim * options.dtype_bytes
    kinds = config.layer_types(num_layers)
    window = config.optional_integer("sliding_window")
    layers = []
    for index, kind in enumerate(kinds):
        word = _WORDS.get(kind)
        if word is None or word in ("linear_attention", "conv"):
            raise ConfigError(
                f"layer_types[{index}]={shown(kind)}: its cache cannot be read from the config; "
                "declare LayerSpec yourself"
            )
        sliding = word == "sliding_attention"
        if sliding and window is None:
            raise ConfigError(f"sliding_window: absent, but layer_types[{index}] is {kind!r}")
        layers.append(
            LayerSpec(
                layer_id=index,
                attention=word,
                buffers=(BufferSpec("key", entry), BufferSpec("value", entry)),
                window=window if sliding else None,
                sink_tokens=options.sink_tokens if sliding else 0,
            )
        )
    return tuple(layers)


class _Fields:
    """Reads a mapping or an object alike; multimodal configs are entered through their text part."""

    def __init__(self, source: Mapping[str, object] | object) -> None:
        inner = self._get(source, "text_config")
        self._source = source if inner is None else inner

    @staticmethod
    def _get(source: Mapping[str, object] | object, name: str) -> object:
        return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)

    def optional_integer(self, name: str) -> int | None:
        value = self._get(self._source, name)
        if value is None:
            return None
        check_integer(name, value, 1, _MOST_LAYERS if name == "num_hidden_layers" else _MOST)
        assert isinstance(value, int)
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.optional_integer(name)
        if value is not None:
            return value
        if default is None:
            raise ConfigError(f"{name}: the model config must give it")
        return default

    def layer_types(self, num_layers: int) -> list[str]:
        kinds = self._get(self._source, "layer_types")
        if kinds is None:
            sliding = self._get(self._source, "sliding_window") is not None
            if self._get(self._source, "use_sliding_window") is False:
                sliding = False
            if self._get(self._source, "model_type") == "llama":
                sliding = False
            return ["sliding_attention" if sliding else "full_attention"] * num_layers
        if isinstance(kinds, str) or not isinstance(kinds, Sequence) or len(kinds) != num_layers:
            raise ConfigError(f"layer_types: must list one kind for each of num_hidden_layers={num_layers} layers")
        return [str(kind) for kind in kinds]
