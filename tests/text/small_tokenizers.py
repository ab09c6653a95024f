"""Two tiny tokenizers: one written in bytes, one in pieces with byte fallback and a leading-space rule."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level() -> PreTrainedTokenizerFast:
    """One token per byte, and the ChatML markers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    backend.add_tokens([AddedToken("two words", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", chat_template=CHATML)


def pieces() -> PreTrainedTokenizerFast:
    """Words with a leading-space mark; what is not a word falls back to byte tokens."""
    words = ["▁the", "▁tide", "▁gate", "s", "▁", "a", "b"]
    vocabulary = {t: i for i, t in enumerate(["<unk>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words])}
    merges = [("▁", "a")]
    vocabulary["▁a"] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
