"""The native kernel and plain torch give the same attention, over shapes no model here happens to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidegate.engine.reference.attention import AttentionKernel, BufferPages, LayerCall, SequenceSpans
from tidegate.engine.reference.checkpoint import default_cache
from tidegate.engine.reference.kernel_build import load_kernel_library
from tidegate.engine.reference.native_attention import NativeAttention
from tidegate.engine.reference.torch_attention import TorchAttention

Pages = tuple[torch.Tensor, torch.Tensor]
Scene = tuple[LayerCall, SequenceSpans, Pages, np.ndarray]


def native() -> NativeAttention:
    kernel = NativeAttention.load(default_cache())
    if kernel is None:
        pytest.skip("no C++ compiler")
    return kernel


def scene(*, heads: int, kv_heads: int, dim: int, value_dim: int, block: int, dtype: torch.dtype, **rule: Any) -> Scene:
    """Three sequences: a long prefill in the middle, a decode, and a start from nothing, over poisoned pages."""
    generator = torch.Generator().manual_seed(0)
    lengths, starts = [70, 1, 9], [33, 150, 0]
    total = sum(lengths)
    width = -(-160 // block)
    pages = 3 * width
    keys = torch.full((pages + 1, kv_heads, dim, block), float("nan"), dtype=dtype)
    values = torch.full((pages + 1, kv_heads, block, value_dim), float("nan"), dtype=dtype)
    # Page 0 belongs to nobody: whoever takes -1 for an index or clamps it to 0 finds NaN.
    table = 1 + np.random.default_rng(0).permutation(pages).astype(np.int32).reshape(3, width)
    for row, start in enumerate(starts):
        for position in range(start):
            page = table[row, position // block]
            keys[page, :, :, position % block] = torch.randn(kv_heads, dim, generator=generator).to(dtype)
            values[page, :, position % block] = torch.randn(kv_heads, value_dim, generator=generator).to(dtype)
    q, k, v = (
        torch.randn(1, h, total, d, generator=generator).to(dtype)
        for h, d in ((heads, dim), (kv_heads, dim), (kv_heads, value_dim))
    )
    call = LayerCall(layer_id=0, query=q, key=k, value=v, scaling=dim**-0.5, **rule)
    spans = SequenceSpans(np.cumsum([0, *lengths]).astype(np.int32), np.array(starts))
    return call, spans, (keys, values), table


def attend(
    kernel: AttentionKernel, call: LayerCall, spans: SequenceSpans, pages: Pages, table: np.ndarray
) -> torch.Tensor:
    rows = np.arange(3)
    keys, values = (BufferPages(p.clone(), table, rows, 1, 0) for p in pages)
    out = kernel.attend(call, spans, keys, values)
    assert torch.isfinite(out).all()
    return out.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(9, 3, 64, 64, 32), (4, 1, 40, 24, 16), (2, 2, 7, 5, 3), (16, 2, 128, 128, 48)])
@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"window": 20},
        {"window": 1},
        {"window": 20, "sink_tokens": 5},
        {"window": 500, "sink_tokens": 40},
        {"softcap": 0.7},
        {"window": 33, "sink_logits": "per head"},
    ],
    ids=str,
)
def test_every_rule_and_shape(shape: tuple[int, ...], rule: dict[str, object], dtype: torch.dtype) -> None:
    heads, kv_heads, dim, value_dim, block = shape
    if "sink_logits" in rule:
        rule = {**rule, "sink_logits": torch.linspace(-1, 2, heads).to(dtype)}
    made = scene(heads=heads, kv_heads=kv_heads, dim=dim, value_dim=value_dim, block=block, dtype=dtype, **rule)
    tolerance = 2e-6 if dtype is torch.float32 else 2e-2
    assert (attend(native(), *made) - attend(TorchAttention(), *made)).abs().max() < tolerance


@pytest.mark.parametrize("kernel", ["native", "torch"])
def test_blocks_without_a_page_are_masked(kernel: str) -> None:
    chosen = native() if kernel == "native" else TorchAttention()
    call, spans, pages, table = scene(heads=4, kv_heads=2, dim=16, value_dim=16, block=8, dtype=torch.float32)
    holes = table.copy()
    holes[1, :17] = -1
    got = attend(chosen, call, spans, pages, holes)[70]
    seen = range(136, 150)
    k = torch.stack([pages[0][table[1, p // 8], :, :, p % 8] for p in seen] + [call.key[0, :, 70]])
    v = torch.stack([pages[1][table[1, p // 8], :, p % 8] for p in seen] + [call.value[0, :, 70]])
    weights = torch.softmax(torch.einsum("hgd,phd->hgp", call.query[0, :, 70].view(2, 2, 16), k) * call.scaling, -1)
    assert torch.allclose(got.view(2, 2, 16), torch.einsum("hgp,phd->hgd", weights, v), atol=1e-5)


def test_two_threads_give_what_one_gives() -> None:
    made = scene(heads=9, kv_heads=3, dim=64, value_dim=64, block=32, dtype=torch.float32, window=40)
    alone = attend(native(), *made)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(attend(native(), *made), alone)
    finally:
        torch.set_num_threads(threads)


def test_a_missing_or_failing_compiler_is_told_and_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    assert load_kernel_library(tmp_path) is None
    assert "plain torch" in caplog.text
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    caplog.clear()
    assert load_kernel_library(tmp_path) is None
    assert "no C++ compiler" in caplog.text
