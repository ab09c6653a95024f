"""The bytes each token stands for, for tokenizers whose vocabulary is written in bytes."""

from __future__ import annotations

import json

from transformers import PreTrainedTokenizerBase


def byte_table(tokenizer: PreTrainedTokenizerBase) -> tuple[bytes, ...] | None:
    """Return every token's bytes by id; None for a vocabulary that is not written in byte-level characters."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.decoder is None:
        return None
    if json.loads(backend.to_str()).get("decoder", {}).get("type") != "ByteLevel":
        return None
    byte_of = _byte_of_character()
    table = []
    for token in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))):
        text = token or ""
        # Added tokens may hold characters outside the byte alphabet: those are plain text.
        is_bytes = all(c in byte_of for c in text)
        table.append(bytes(byte_of[c] for c in text) if is_bytes else text.encode())
    return tuple(table)


def fallback_bytes(tokenizer: PreTrainedTokenizerBase) -> dict[int, int]:
    """Return id to byte of the tokens ``<0x00> .. <0xFF>`` that stand for single bytes; empty where there are none."""
    vocabulary = tokenizer.get_vocab()
    return {vocabulary[name]: byte for byte in range(256) if (name := f"<0x{byte:02X}>") in vocabulary}


def _byte_of_character() -> dict[str, int]:
    """Return the byte-level alphabet: printable Latin-1 stands for itself, the others are moved past U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    moved = [b for b in range(256) if b not in set(printable)]
    alphabet.update({chr(0x100 + i): b for i, b in enumerate(moved)})
    return alphabet
