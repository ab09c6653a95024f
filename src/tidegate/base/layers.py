"""What a model declares about its layers' caches, and where a buffer ended up.

Here, below everything, because engines declare it, the cache plans with it, and neither may import the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tidegate.base.checks import check_bool, check_integer, check_text, check_tuple, shown
from tidegate.base.errors import ConfigError
from tidegate.base.ids import ByteArray, Int32Array


class Retention(Enum):
    """How long a layer needs what it cached."""

    FULL = "full"
    WINDOW = "window"
    STATE = "state"


_MOST = (1 << 31) - 1
_RETENTION = {
    "full_attention": Retention.FULL,
    "indexed_attention": Retention.FULL,
    "compressed_sparse_attention": Retention.FULL,
    "heavily_compressed_attention": Retention.FULL,
    "sliding_attention": Retention.WINDOW,
    "linear_attention": Retention.STATE,
    "conv": Retention.STATE,
}


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer of a layer: ``bytes_per_entry`` per cached entry (a token, or ``ratio`` tokens when compressed).

    A state layer has one entry, its whole state.
    """

    role: str
    bytes_per_entry: int

    def __post_init__(self) -> None:
        check_text("role", self.role)
        check_integer(f"buffer {self.role!r}: bytes_per_entry", self.bytes_per_entry, 1, 1 << 40)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer's cache needs, in the words of a Hugging Face ``layer_types`` list.

    ``window`` counts the query token itself. ``ratio`` tokens make one entry of a compressed layer. ``scratch`` is
    False for a layer whose keys and values another layer reads (shared-KV models).
    """

    layer_id: int
    attention: str
    buffers: tuple[BufferSpec, ...]
    window: int | None = None
    sink_tokens: int = 0
    block_tokens: int | None = None
    ratio: int = 1
    scratch: bool = True

    def __post_init__(self) -> None:
        check_integer("layer_id", self.layer_id, 0, _MOST)
        where = f"layer {self.layer_id}"
        check_text(f"{where}: attention", self.attention)
        if self.attention not in _RETENTION:
            raise ConfigError(f"{where}: attention {shown(self.attention)} is not one of {sorted(_RETENTION)}")
        check_tuple(f"{where}: buffers", self.buffers, BufferSpec)
        if not self.buffers:
            raise ConfigError(f"{where}: buffers=() needs one BufferSpec or more")
        for name in ("window", "sink_tokens", "block_tokens", "ratio"):
            if getattr(self, name) is not None:
                check_integer(f"{where}: {name}", getattr(self, name), 0 if name == "sink_tokens" else 1, _MOST)
        check_bool(f"{where}: scratch", self.scratch)
        if len({b.role for b in self.buffers}) != len(self.buffers):
            raise ConfigError(f"{where}: buffer roles must differ, got {[b.role for b in self.buffers]}")
        if (self.retention is Retention.WINDOW) != (self.window is not None):
            raise ConfigError(f"{where}: window={self.window} with attention {self.attention!r}; only sliding has one")
        if self.sink_tokens and self.window is None:
            raise ConfigError(f"{where}: sink_tokens={self.sink_tokens} needs a window")

    @property
    def retention(self) -> Retention:
        """The life cycle that ``attention`` implies."""
        return _RETENTION[self.attention]


@dataclass(frozen=True, slots=True)
class BufferLocation:
    """Where one buffer of one layer lies: sub-page ``sub_page`` of every slot of ``pool``, ``sub_page_bytes`` long.

    ``group`` is the layer group whose rows address it, ``index`` the buffer's place in that group's per-layer tables.
    ``pool`` indexes the pools handed to ``Engine.bind``. ``scratch_sub_page`` is the buffer's ordinal among its own
    layer's buffers in that pool: where scratch block ``i`` puts it is sub-page ``(i % k) * u + scratch_sub_page``.
    """

    layer_id: int
    role: str
    group: int
    index: int
    pool: int
    sub_page: int
    scratch_sub_page: int
    sub_page_bytes: int


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """One pool as an engine binds it: ``rows`` is uint8 ``[num_slots, sub_pages * sub_page_bytes]``, contiguous."""

    rows: ByteArray
    sub_pages: int
    sub_page_bytes: int


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Everything an engine needs to find its buffers: the block size of each group and each buffer's location."""

    block_tokens: tuple[int, ...]
    locations: tuple[BufferLocation, ...]


class GroupTables:
    """One layer group's page table for a step.

    Shared mode (``layer_tables is None``): ``slots`` is the whole arena int32 ``[num_rows, max_blocks]``; the slot of
    block ``j`` of sequence ``i`` is ``slots[step.rows[i], j]``, and buffer ``b`` lies at absolute sub-page
    ``slot * sub_pages + location.sub_page`` of its pool.

    Per-layer mode, while scratch is live: ``layer_tables`` is int32 ``[num_buffers, num_sequences, width]``, absolute
    sub-page indices of the pool, indexed by ``location.index`` and by the sequence's place in the step (not its row).

    -1 (``BAD_PAGE``) is a block without a page: it must be masked, never read.

    Per-layer tables may be given as a function: they grow with layers times context, and who only counts pages (a
    simulator, a step that is taken back) needs none. They are made when first asked for, before the step settles.
    """

    __slots__ = ("_layer_tables", "slots")

    def __init__(self, slots: Int32Array, layer_tables: Int32Array | Callable[[], Int32Array] | None = None) -> None:
        self.slots = slots
        self._layer_tables = layer_tables

    @property
    def layer_tables(self) -> Int32Array | None:
        """Absolute sub-pages int32 ``[num_buffers, num_sequences, width]``, None in shared mode."""
        if callable(self._layer_tables):
            self._layer_tables = self._layer_tables()
        return self._layer_tables
