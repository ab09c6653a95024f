"""Attention over pages in plain torch: the portable path, and the one the native kernel is checked against.

It gathers what a query may see, token by token, so windowed layers cost their window only. Scores are fp32.
"""

from __future__ import annotations

import numpy as np
import torch

from tidegate.base import BAD_PAGE, Int64Array
from tidegate.engine.reference.attention import BufferPages, LayerCall, SequenceSpans


class TorchAttention:
    """The fallback kernel."""

    name = "torch"

    def attend(self, call: LayerCall, spans: SequenceSpans, keys: BufferPages, values: BufferPages) -> torch.Tensor:
        """Write, then attend: single-token sequences go together, padded to the longest, others one by one."""
        if call.owns_pages:
            _write(call, spans, keys, values)
        lengths = np.diff(spans.cu_seqlens)
        out = call.query.new_empty(call.query.shape[2], call.query.shape[1], values.pages.shape[3])
        singles = np.flatnonzero(lengths == 1)
        if singles.size:
            tokens = torch.from_numpy(spans.cu_seqlens[singles].astype(np.int64))
            out[tokens] = _attend_group(call, singles, spans, keys, values)[:, 0]
        for i in np.flatnonzero(lengths > 1):
            begin, end = int(spans.cu_seqlens[i]), int(spans.cu_seqlens[i + 1])
            out[begin:end] = _attend_group(call, np.array([i]), spans, keys, values)[0]
        return out


def _write(call: LayerCall, spans: SequenceSpans, keys: BufferPages, values: BufferPages) -> None:
    sequence, position = _flatten(spans)
    block, offset = np.divmod(position, values.pages.shape[2])
    at = torch.from_numpy(offset)
    key_page = torch.from_numpy(_sub_pages(keys, sequence, block))
    value_page = torch.from_numpy(_sub_pages(values, sequence, block))
    keys.pages[key_page, :, :, at] = call.key[0].transpose(0, 1)
    values.pages[value_page, :, at] = call.value[0].transpose(0, 1)


def _flatten(spans: SequenceSpans) -> tuple[Int64Array, Int64Array]:
    """Return each token's sequence and position."""
    lengths = np.diff(spans.cu_seqlens).astype(np.int64)
    sequence = np.repeat(np.arange(lengths.size), lengths)
    place = np.arange(sequence.size) - spans.cu_seqlens[sequence]
    return sequence, spans.starts[sequence] + place


def _sub_pages(buffer: BufferPages, sequence: Int64Array, block: Int64Array) -> Int64Array:
    entry = buffer.table[buffer.rows[sequence], block].astype(np.int64)
    return np.where(entry < 0, BAD_PAGE, entry * buffer.scale + buffer.offset)


def _visible(first: int, last: int, window: int | None, sink_tokens: int) -> Int64Array:
    """Return every position that one of the queries ``first .. last`` reads."""
    low = 0 if window is None else max(0, first - window + 1)
    return np.concatenate([np.arange(min(sink_tokens, low)), np.arange(low, last + 1)])


def _attend_group(
    call: LayerCall, sequences: Int64Array, spans: SequenceSpans, keys: BufferPages, values: BufferPages
) -> torch.Tensor:
    """Attend for sequences of one length ``n``. Return ``[len(sequences), n, heads, value_dim]``."""
    n = int(spans.cu_seqlens[sequences[0] + 1] - spans.cu_seqlens[sequences[0]])
    starts = spans.starts[sequences]
    seen = [_visible(int(s), int(s) + n - 1, call.window, call.sink_tokens) for s in starts]
    width = max(s.size for s in seen)
    position = np.full((len(seen), width), -1, np.int64)
    for row, s in zip(position, seen, strict=True):
        row[: s.size] = s
    block, offset = np.divmod(np.maximum(position, 0), values.pages.shape[2])
    owner = np.broadcast_to(sequences[:, None], position.shape)
    key_page, value_page = _sub_pages(keys, owner, block), _sub_pages(values, owner, block)
    readable = torch.from_numpy((position >= 0) & (key_page >= 0) & (value_page >= 0))
    at = torch.from_numpy(offset)
    k = keys.pages[torch.from_numpy(np.maximum(key_page, 0)), :, :, at].float()
    v = values.pages[torch.from_numpy(np.maximum(value_page, 0)), :, at].float()
    # Whatever lies in a page nobody wrote, NaN included, must not reach the sum through a zero weight.
    v = v.masked_fill(~readable[..., None, None], 0.0)
    mask = readable[:, None, :] & _mask(call, torch.from_numpy(starts), torch.from_numpy(position), n)
    return _softmax_sum(call, _queries(call, spans, sequences, n), k, v, mask)


def _queries(call: LayerCall, spans: SequenceSpans, sequences: Int64Array, n: int) -> torch.Tensor:
    """Return the sequences' queries, scaled, fp32 ``[s, n, heads, dim]``."""
    token = spans.cu_seqlens[sequences].astype(np.int64)[:, None] + np.arange(n)
    return call.query[0].transpose(0, 1)[torch.from_numpy(token)].float() * call.scaling


def _mask(call: LayerCall, starts: torch.Tensor, position: torch.Tensor, n: int) -> torch.Tensor:
    """Return which positions each query reads, bool ``[s, n, width]``."""
    query = (starts[:, None] + torch.arange(n))[:, :, None]
    key = position[:, None, :]
    allowed = key <= query
    if call.window is not None:
        allowed &= (key > query - call.window) | (key < call.sink_tokens)
    return allowed


def _softmax_sum(
    call: LayerCall, query: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    s, n, heads, dim = query.shape
    kv_heads = k.shape[2]
    grouped = query.view(s, n, kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("snhgd,swhd->shgnw", grouped, k)
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    if call.sink_logits is not None:
        sink = call.sink_logits.float().view(1, kv_heads, heads // kv_heads, 1, 1).expand(s, -1, -1, n, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    mixed = torch.einsum("shgnw,swhd->snhgd", weights, v)
    return mixed.reshape(s, n, heads, v.shape[3]).to(call.query.dtype)
