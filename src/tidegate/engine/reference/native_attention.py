"""The C++ kernel behind the same face as the torch one."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import torch

from tidegate.base import EngineError
from tidegate.engine.reference.attention import BufferPages, LayerCall, SequenceSpans
from tidegate.engine.reference.kernel_build import load_kernel_library

_POINTERS = (
    "query", "key", "value", "out", "sink_logits", "key_pages", "value_pages",
    "key_table", "value_table", "rows", "cu_seqlens", "starts",
)  # fmt: skip
_LONGS = (
    "query_token_stride", "query_head_stride", "key_token_stride", "key_head_stride",
    "value_token_stride", "value_head_stride", "key_table_width", "value_table_width",
    "key_scale", "key_offset", "value_scale", "value_offset", "window", "sink_tokens",
)  # fmt: skip
_INTS = ("num_sequences", "heads", "kv_heads", "key_dim", "value_dim", "block_tokens", "threads", "owns_pages")
_FLOATS = ("scaling", "softcap")


class _Call(ctypes.Structure):
    """``struct Call`` of ``paged_attention.cpp``, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _LONGS),
        *((name, ctypes.c_int32) for name in _INTS),
        *((name, ctypes.c_float) for name in _FLOATS),
    ]


class NativeAttention:
    """Attention that reads the block table where it lies."""

    name = "native"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._entries = {torch.float32: library.tidegate_attend_f32, torch.bfloat16: library.tidegate_attend_bf16}

    @classmethod
    def load(cls, cache: Path) -> NativeAttention | None:
        """Build or find the kernel; None where there is no compiler."""
        library = load_kernel_library(cache)
        return None if library is None else cls(library)

    def attend(self, call: LayerCall, spans: SequenceSpans, keys: BufferPages, values: BufferPages) -> torch.Tensor:
        """Write the step's keys and values, then attend."""
        query, key, value = (_rows_contiguous(t[0]) for t in (call.query, call.key, call.value))
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
        sinks = None if call.sink_logits is None else call.sink_logits.detach().float().contiguous()
        rows = np.ascontiguousarray(keys.rows, np.int64)
        cu_seqlens = np.ascontiguousarray(spans.cu_seqlens, np.int32)
        starts = np.ascontiguousarray(spans.starts, np.int64)
        arguments = _Call(
            query=query.data_ptr(), key=key.data_ptr(), value=value.data_ptr(), out=out.data_ptr(),
            sink_logits=None if sinks is None else sinks.data_ptr(),
            key_pages=keys.pages.data_ptr(), value_pages=values.pages.data_ptr(),
            key_table=_table_address(keys), value_table=_table_address(values),
            rows=rows.ctypes.data, cu_seqlens=cu_seqlens.ctypes.data, starts=starts.ctypes.data,
            query_head_stride=query.stride(0), query_token_stride=query.stride(1),
            key_head_stride=key.stride(0), key_token_stride=key.stride(1),
            value_head_stride=value.stride(0), value_token_stride=value.stride(1),
            key_table_width=keys.table.strides[0] // 4, value_table_width=values.table.strides[0] // 4,
            key_scale=keys.scale, key_offset=keys.offset,
            value_scale=values.scale, value_offset=values.offset,
            window=call.window or 0, sink_tokens=call.sink_tokens, num_sequences=cu_seqlens.size - 1,
            heads=query.shape[0], kv_heads=key.shape[0], key_dim=key.shape[2], value_dim=value.shape[2],
            block_tokens=values.pages.shape[2], threads=torch.get_num_threads(),
            owns_pages=call.owns_pages,
            scaling=call.scaling, softcap=call.softcap or 0.0,
        )  # fmt: skip
        self._entries[query.dtype](ctypes.byref(arguments))
        return out


def _rows_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _table_address(buffer: BufferPages) -> int:
    if buffer.table.dtype != np.int32 or buffer.table.strides[1] != 4:
        raise EngineError(f"a page table must be int32 with contiguous rows, not {buffer.table.dtype}")
    return buffer.table.ctypes.data
