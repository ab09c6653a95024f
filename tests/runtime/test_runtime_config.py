import pytest

from tidegate.base import ConfigError
from tidegate.runtime import ModelConfig, RuntimeConfig


def test_flat_settings_find_their_sections() -> None:
    config = RuntimeConfig.from_settings({"max_num_tokens": 256, "tokens_per_block": 16, "overlap": True, "dtype": "x"})

    assert config.scheduler.max_num_tokens == 256
    assert config.cache.tokens_per_block == 16
    assert config.loop.overlap
    assert config.model.dtype == "x"


@pytest.mark.parametrize(
    ("alias", "value"),
    [("max_num_batched_tokens", 256), ("max_num_seqs", 8), ("block_size", 16), ("max_model_len", 100)],
)
def test_names_of_vllm_are_accepted_but_not_twice(alias: str, value: int) -> None:
    config = RuntimeConfig.from_settings({alias: value})
    known = {
        "max_num_batched_tokens": ("max_num_tokens", config.scheduler.max_num_tokens),
        "max_num_seqs": ("max_batch_size", config.scheduler.max_batch_size),
        "block_size": ("tokens_per_block", config.cache.tokens_per_block),
        "max_model_len": ("max_seq_len", config.cache.max_seq_len),
    }
    name, found = known[alias]

    assert found == value
    with pytest.raises(ConfigError, match="given twice"):
        RuntimeConfig.from_settings({alias: value, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens_per_step", 5),
        ("tokens_per_block", 0),
        ("max_seq_len", True),
        ("overlap", 1),
        ("seed", -1),
        ("model", ""),
        ("max_util_for_resume", 0.0),
        ("enable_partial_reuse", "yes"),
    ],
)
def test_unknown_or_illegal_setting_is_refused_with_name_and_value(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        RuntimeConfig.from_settings({name: value})


@pytest.mark.parametrize(
    ("attention", "window"),
    [
        ("model", None),
        ("window:128", (128, 3, 0)),
        ("window:128:2", (128, 2, 0)),
        ("window:64:4:8", (64, 4, 8)),
    ],
)
def test_attention_pattern_is_read(attention: str, window: tuple[int, int, int] | None) -> None:
    assert ModelConfig(attention=attention).window() == window


@pytest.mark.parametrize("attention", ["", "full", "window", "window:", "window:-1", "window:0", "window:1:2:3:4"])
def test_unknown_attention_is_refused(attention: str) -> None:
    with pytest.raises(ConfigError, match="attention"):
        ModelConfig(attention=attention)
