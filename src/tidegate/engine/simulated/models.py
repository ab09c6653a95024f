"""Shapes of published models, from their ``config.json``."""

from __future__ import annotations

from tidegate.base import ConfigError, shown
from tidegate.engine.simulated.model_shape import Attention, FeedForward, ModelShape, compressed, full, state, window

_BF16 = 2


def _grouped(hidden: int, heads: int, kv_heads: int, dim: int, window_tokens: int | None = None) -> Attention:
    """Grouped-query attention: keys and values of ``kv_heads`` heads in bf16."""
    size = kv_heads * dim * _BF16
    return Attention(
        parts=(full(size, size) if window_tokens is None else window(window_tokens, size, size),),
        num_parameters=2 * hidden * dim * (heads + kv_heads),
        pair_flops=4 * heads * dim,
    )


def _gated(hidden: int, intermediate: int) -> FeedForward:
    return FeedForward(num_parameters=3 * hidden * intermediate)


def _experts(hidden: int, intermediate: int, count: int, top_k: int, shared: int = 0) -> FeedForward:
    each = 3 * hidden * intermediate
    return FeedForward(
        num_parameters=shared * each + hidden * count, num_experts=count, expert_parameters=each, top_k=top_k
    )


def _llama(name: str, layers: int, hidden: int, heads: int, intermediate: int) -> ModelShape:
    layer = (_grouped(hidden, heads, 8, 128), _gated(hidden, intermediate))
    return ModelShape(name=name, hidden=hidden, vocab_size=128_256, layers=(layer,) * layers)


def _qwen_dense() -> ModelShape:
    layer = (_grouped(5120, 64, 8, 128), _gated(5120, 25_600))
    return ModelShape(name="qwen3-32b", hidden=5120, vocab_size=151_936, layers=(layer,) * 64)


def _qwen_experts() -> ModelShape:
    layer = (_grouped(2048, 32, 4, 128), _experts(2048, 768, 128, 8))
    return ModelShape(name="qwen3-30b-a3b", hidden=2048, vocab_size=151_936, layers=(layer,) * 48)


def _gemma() -> ModelShape:
    """Every sixth layer is full, the others see 1,024 tokens."""
    kinds = [_grouped(5376, 32, 16, 128, None if (i + 1) % 6 == 0 else 1024) for i in range(62)]
    layers = tuple((kind, _gated(5376, 21_504)) for kind in kinds)
    return ModelShape(name="gemma-3-27b", hidden=5376, vocab_size=262_208, layers=layers, is_tied=True)


def _gpt_oss(name: str, layers: int, experts: int) -> ModelShape:
    """Layers alternate between 128 tokens and all; MXFP4 experts take 4.25 bits a weight."""
    kinds = [_grouped(2880, 64, 8, 64, None if i % 2 else 128) for i in range(layers)]
    return ModelShape(
        name=name,
        hidden=2880,
        vocab_size=201_088,
        layers=tuple((kind, _experts(2880, 2880, experts, 4)) for kind in kinds),
        expert_bytes_each=4.25 / 8,
    )


def _deepseek_v3() -> ModelShape:
    """Multi-head latent attention: one latent of 512 + 64 per token; queries are compressed to 1,536."""
    hidden, heads = 7168, 128
    parameters = hidden * 1536 + 1536 * heads * 192 + hidden * 576 + 512 * heads * 256 + heads * 128 * hidden
    # With its projections absorbed, decoding multiplies 576 for a score and 512 for a value, per head.
    latent = Attention(parts=(full(576 * _BF16),), num_parameters=parameters, pair_flops=2 * heads * (576 + 512))
    dense, experts = _gated(hidden, 18_432), _experts(hidden, 2048, 256, 8, shared=1)
    return ModelShape(
        name="deepseek-v3",
        hidden=hidden,
        vocab_size=129_280,
        layers=((latent, dense),) * 3 + ((latent, experts),) * 58,
        weight_bytes_each=1.0,
        expert_bytes_each=1.0,
    )


def _deepseek_v4_flash() -> ModelShape:
    """Heavily compressed layers and sparse ones in turn, each with a window of 128 and its compressor's state.

    Entries of the 512-wide shared key and value take 584 bytes in fp8 with scales, an indexer's 132. Compressors keep
    13.1 MiB per request over 43 layers. A sparse query looks at 512 entries.
    """
    hidden, heads, dim = 4096, 64, 512
    parameters = hidden * 1024 + 1024 * heads * dim + hidden * dim + 8 * (heads // 8 * dim) * 1024 + 8 * 1024 * hidden
    constant = (window(128, 584), state(round(13.1 * 2**20 / 43)))
    pair_flops = 4 * heads * dim
    heavy = Attention(
        parts=(compressed("heavily_compressed_attention", 128, 584), *constant),
        num_parameters=parameters,
        pair_flops=pair_flops,
    )
    sparse = Attention(
        parts=(compressed("compressed_sparse_attention", 4, 584, 132), *constant),
        num_parameters=parameters,
        pair_flops=pair_flops,
        most_entries=512,
    )
    experts = _experts(hidden, 2048, 256, 6, shared=1)
    kinds = [sparse if i >= 2 and i % 2 else heavy for i in range(43)]
    return ModelShape(
        name="deepseek-v4-flash",
        hidden=hidden,
        vocab_size=129_280,
        layers=tuple((kind, experts) for kind in kinds),
        weight_bytes_each=1.0,
        expert_bytes_each=4.25 / 8,
    )


MODELS = {
    shape.name: shape
    for shape in (
        _llama("llama-3.1-8b", 32, 4096, 32, 14_336),
        _llama("llama-3.1-70b", 80, 8192, 64, 28_672),
        _qwen_dense(),
        _qwen_experts(),
        _gemma(),
        _gpt_oss("gpt-oss-20b", 24, 32),
        _gpt_oss("gpt-oss-120b", 36, 128),
        _deepseek_v3(),
        _deepseek_v4_flash(),
    )
}


def model_of(name: str) -> ModelShape:
    """Return a preset. Raises ``ConfigError`` naming those there are."""
    if name not in MODELS:
        raise ConfigError(f"model={shown(name)} must be one of {sorted(MODELS)}", field="model")
    return MODELS[name]
