"""Requests with the same uncached prefix: one computes it, the others wait until it can be reused."""

from __future__ import annotations

import numpy as np

from tidegate.base import Int32Array
from tidegate.request import Request

BlockKey = tuple[str | None, str | int, str | None, int, bytes]


class PrefixOwners:
    """The next block that each prefill of a plan will publish. Blocks are found by content, prefixes then compared."""

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self._owners: dict[BlockKey, list[Int32Array]] = {}

    def add(self, request: Request, tokens: Int32Array, published: int) -> None:
        """Note a prefill whose prefix up to ``published`` can be reused already."""
        begin, end = self._next_block(published)
        if end <= len(tokens) and request.access == "read_write" and not request.prompt_logprobs:
            self._owners.setdefault(_block_key(request, tokens, begin, end), []).append(tokens)

    def is_computing(self, request: Request, tokens: Int32Array, reused: int) -> bool:
        """Tell whether somebody computes the block that ``request`` would compute first."""
        begin, end = self._next_block(reused)
        if not self._owners or end > len(tokens) or request.access == "none" or request.prompt_logprobs:
            return False
        owners = self._owners.get(_block_key(request, tokens, begin, end), ())
        return any(np.array_equal(owner[:begin], tokens[:begin]) for owner in owners)

    def _next_block(self, published: int) -> tuple[int, int]:
        begin = published // self._unit * self._unit
        return begin, begin + self._unit


def _block_key(request: Request, tokens: Int32Array, begin: int, end: int) -> BlockKey:
    return (request.lora_id, request.lora_version, request.salt, begin, tokens[begin:end].tobytes())
