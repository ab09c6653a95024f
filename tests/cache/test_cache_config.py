"""Configurations of the cache that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.base import BufferSpec, ConfigError, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager, ModelCacheOptions, ReuseScope
from tidegate.testing.layouts import full, stacked

BAD: dict[str, tuple[Any, ...]] = {
    "layers": (None, 5, ("x",), [full()]),
    "max_sequences": (0, True, 1.5, "x", 2**31),
    "max_seq_len": (0, 2**31),
    "tokens_per_block": (0, True, 2**40),
    "max_open_steps": (0, 10**7),
    "max_rewind_len": (-1, 2**62),
    "pool_slots": (5, [16], (1.5,), ("x",), (True,), (-1,), (2**31,), ((16,),)),
    "swa_scratch_reuse": (1, "yes", None),
    "enable_prefix_caching": (0, "no"),
    "max_util_for_resume": (0.0, 1.1, float("nan"), "x", None, True),
    "publish": ("x", None, []),
    "window_checkpoints": ("x", None, 5, "every:0", "every:" + "9" * 5000),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_illegal_settings_are_named(name: str, value: Any) -> None:
    settings: dict[str, Any] = {
        "layers": stacked(full()),
        "max_sequences": 4,
        "max_seq_len": 64,
        "pool_slots": (16,),
        name: value,
    }
    with pytest.raises(ConfigError, match=name):
        KVCacheConfig(**settings)


def test_pools_that_page_tables_cannot_number_are_refused() -> None:
    config = KVCacheConfig(layers=stacked(full()), max_sequences=1, max_seq_len=64, device_bytes=1 << 59)
    with pytest.raises(ConfigError, match="device_bytes"):
        KVCacheManager(config, with_memory=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer_id", "x"),
        ("layer_id", -1),
        ("attention", []),
        ("attention", "sparse"),
        ("buffers", 5),
        ("buffers", (5,)),
        ("buffers", ()),
        ("window", 1.5),
        ("window", True),
        ("window", 2**70),
        ("sink_tokens", 1.5),
        ("block_tokens", "x"),
        ("ratio", 0.5),
        ("scratch", "x"),
    ],
)
def test_illegal_layers_are_named(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"layer_id": 0, "attention": "sliding_attention", "buffers": (BufferSpec("key", 8),)}
    with pytest.raises(ConfigError, match=name):
        LayerSpec(**{**fields, "window": 8, name: value})


@pytest.mark.parametrize(("role", "size"), [("key", -1), ("key", 1.5), ("key", "x"), (None, 4)])
def test_illegal_buffers(role: Any, size: Any) -> None:
    with pytest.raises(ConfigError, match=r"role|bytes_per_entry"):
        BufferSpec(role, size)


@pytest.mark.parametrize(
    "field", [{"num_hidden_layers": 10**9}, {"head_dim": 10**40}, {"sliding_window": True}, {"layer_types": [[], []]}]
)
def test_odd_numbers_of_a_model(field: dict[str, Any]) -> None:
    model = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, **field}
    with pytest.raises(ConfigError, match=next(iter(field))):
        KVCacheConfig.from_model_config(model, max_sequences=1, max_seq_len=64, device_bytes=1 << 20)


def test_odd_options_of_a_model() -> None:
    for wrong in ({"dtype_bytes": 0}, {"dtype_bytes": 1.5}, {"sink_tokens": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ModelCacheOptions(**wrong)


@pytest.mark.parametrize("field", [{"lora_id": []}, {"salt": 5}, {"lora_version": None}, {"lora_id": True}])
def test_odd_reuse_scopes(field: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(field))):
        ReuseScope(**field)
