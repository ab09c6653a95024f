"""What one layer's attention is asked to do, and where its pages are: the words both kernels share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from tidegate.base import Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One layer's tensors as the model hands them over: ``[1, heads, T, dim]``, keys already rotated.

    ``window`` counts the query itself, None is full attention; ``sink_tokens`` first positions stay visible behind a
    window; ``softcap`` bounds scores by ``softcap * tanh(score / softcap)``; ``sink_logits`` ``[heads]`` is one extra
    logit per head in the softmax that carries no value. A layer that reads another layer's keys and values does not
    own its pages and writes nothing.
    """

    layer_id: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float
    window: int | None = None
    sink_tokens: int = 0
    softcap: float | None = None
    sink_logits: torch.Tensor | None = None
    owns_pages: bool = True


@dataclass(frozen=True, slots=True)
class BufferPages:
    """One buffer's sub-pages, and the table that finds them.

    Block ``j`` of sequence ``i`` is ``pages[table[rows[i], j] * scale + offset]``; a negative entry has no page.
    ``pages`` is the whole pool in the model's dtype: keys ``[n, kv_heads, dim, block_tokens]`` (a score is then a sum
    of vectors over the block, without horizontal sums), values ``[n, kv_heads, block_tokens, dim]``.
    """

    pages: torch.Tensor
    table: Int32Array
    rows: Int64Array
    scale: int
    offset: int


@dataclass(frozen=True, slots=True)
class SequenceSpans:
    """Where each sequence of the step lies: tokens ``cu_seqlens[i]:cu_seqlens[i+1]``, at ``starts[i]`` and up."""

    cu_seqlens: Int32Array
    starts: Int64Array


class AttentionKernel(Protocol):
    """Attention over pages."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def attend(self, call: LayerCall, spans: SequenceSpans, keys: BufferPages, values: BufferPages) -> torch.Tensor:
        """Write the step's keys and values into their pages, then attend over these: ``[T, heads, value_dim]``.

        All writes of a layer come before its first read, and pages of one layer's blocks never coincide; pages of
        different layers may, while scratch is live.
        """
        ...
