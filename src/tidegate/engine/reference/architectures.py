"""Which model types the reference engine takes: those whose every attention rule reaches the attention function."""

from __future__ import annotations

from transformers import PreTrainedConfig

from tidegate.base import ConfigError, check_integer

ARCHITECTURES = frozenset(
    {
        "cohere2",
        "deepseek_v3",
        "exaone4",
        "gemma2",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_text",
        "gpt_oss",
        "granite",
        "llama",
        "ministral",
        "mistral",
        "mixtral",
        "olmo2",
        "olmo3",
        "phi3",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "starcoder2",
    }
)
"""Each is compared with its own dense forward in ``tests/engine``."""

_MOST = {
    "num_hidden_layers": 4096,
    "hidden_size": 1 << 24,
    "vocab_size": 1 << 24,
    "max_position_embeddings": (1 << 31) - 1,
}
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_UNBATCHABLE_ROPE = {"dynamic", "longrope"}


def check_architecture(config: PreTrainedConfig) -> None:
    """Refuse a model that the paged attention would silently compute wrongly."""
    if config.model_type not in ARCHITECTURES:
        raise ConfigError(f"model type {config.model_type!r} is not supported; supported: {sorted(ARCHITECTURES)}")
    _check_shape(config.get_text_config())
    odd = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    if odd:
        raise ConfigError(f"layer types {sorted(odd)} are not supported; supported: {sorted(_LAYER_TYPES)}")
    if getattr(config, "use_bidirectional_attention", False) or not getattr(config, "is_causal", True):
        raise ConfigError(f"model type {config.model_type!r} attends in both directions; only causal models generate")
    kinds = _rope_types(getattr(config, "rope_parameters", None))
    if kinds & _UNBATCHABLE_ROPE:
        raise ConfigError(
            f"rope type {sorted(kinds & _UNBATCHABLE_ROPE)} rotates every sequence of a batch by the longest one, "
            "so outputs would depend on the batch; use a checkpoint with another rope type"
        )


def _check_shape(config: PreTrainedConfig) -> None:
    """Refuse numbers that no model has, before anything is sized by them."""
    for name, most in _MOST.items():
        value = getattr(config, name, None)
        if value is not None:
            check_integer(name, value, 1, most)


def _rope_types(parameters: object) -> set[str]:
    """Collect every ``rope_type``, of the whole model or per layer type."""
    if not isinstance(parameters, dict):
        return set()
    found = {str(parameters["rope_type"])} if "rope_type" in parameters else set()
    for value in parameters.values():
        found |= _rope_types(value)
    return found
