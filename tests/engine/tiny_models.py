"""Random-weight models, small enough for a unit test, of every architecture the engine takes."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_SHAPE = {
    "vocab_size": 131,
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"] * 2}
_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
_OWN: dict[str, dict[str, object]] = {
    "cohere2": {"sliding_window": 32, **_ALTERNATING},
    "deepseek_v3": {
        "num_key_value_heads": 6,
        "head_dim": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 12,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
    },
    "exaone4": {"sliding_window": 32, "sliding_window_pattern": 2, **_ALTERNATING},
    "gemma2": {"sliding_window": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, **_ALTERNATING},
    "gemma3_text": {"sliding_window": 48, "query_pre_attn_scalar": 24, **_ALTERNATING},
    "gemma3n_text": {
        "sliding_window": 32,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 131,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
        "activation_sparsity_pattern": [0.0] * 4,
        **_ALTERNATING,
    },
    "gemma4_text": {
        "sliding_window": 32,
        "num_kv_shared_layers": 2,
        "global_head_dim": 32,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 131,
        **_ALTERNATING,
    },
    "gpt_oss": {"sliding_window": 32, **_ALTERNATING, **_MOE},
    "granite": {"attention_multiplier": 0.3, "logits_scaling": 2.0},
    "llama": {},
    "ministral": {"sliding_window": 48, **_ALTERNATING},
    "mistral": {"sliding_window": 32},
    "mixtral": {"sliding_window": 48, **_MOE},
    "olmo2": {},
    "olmo3": {"sliding_window": 32, **_ALTERNATING},
    "phi3": {"sliding_window": 48},
    "qwen2": {"use_sliding_window": True, "sliding_window": 48, "max_window_layers": 2},
    "qwen3": {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "smollm3": {"use_sliding_window": True, "sliding_window": 32, **_ALTERNATING},
    "starcoder2": {"sliding_window": 48},
}
ARCHITECTURES = tuple(_OWN)
_NO_HEAD_DIM = {"phi3"}


def tiny_model(
    architecture: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **extra: object
) -> PreTrainedModel:
    """Build a model whose logits depend visibly on every layer's attention."""
    shape = {k: v for k, v in _SHAPE.items() if not (k == "head_dim" and architecture in _NO_HEAD_DIM)}
    config = AutoConfig.for_model(architecture, **{**shape, "initializer_range": 0.15, **_OWN[architecture], **extra})
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_(0.0, 2.0)
            elif name.endswith("proj.bias"):
                parameter.normal_(0.0, 0.2)
    model.eval()
    return model
