"""What scratch does to one long chunk: two managers without memory, one with scratch and one without, count it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import BufferSpec, LayerSpec
from tidegate.cache import KVCacheConfig, KVCacheManager


@dataclass(frozen=True, slots=True)
class ScratchExample:
    """One prompt computed in one step by windowed layers only."""

    layers: int = 32
    tokens: int = 1024
    window: int = 128
    block: int = 32

    def slots(self, *, scratch: bool) -> int:
        """Return how many slots the step takes."""
        buffers = (BufferSpec("key", 2), BufferSpec("value", 2))
        config = KVCacheConfig(
            layers=tuple(LayerSpec(i, "sliding_attention", buffers, window=self.window) for i in range(self.layers)),
            max_sequences=1,
            max_seq_len=self.tokens,
            tokens_per_block=self.block,
            pool_slots=(2 * self.tokens // self.block,),
            swa_scratch_reuse=scratch,
        )
        manager = KVCacheManager(config, with_memory=False)
        quote = manager.quote()
        before = sum(quote.supply)
        quote.admit(manager.candidate(np.zeros(self.tokens, np.int32)), self.tokens)
        return before - sum(quote.supply)
