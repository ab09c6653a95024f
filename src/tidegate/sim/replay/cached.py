"""Requests through the production cache without engine and scheduler: match, reserve, publish, close.

A block is replayed as ``UNITS`` tokens, whatever its size. That is exact, not a sample: pages, matches and evictions
depend on where blocks begin and end, on whether two blocks say the same, and, where a window slides, on whether a block
is empty, begun, one short of full, or full. Partial reuse is off; the borders of windows, chunks and declared prefixes
must be borders of blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tidegate.base import BufferSpec, ConfigError, Int32Array, Int64Array, InternalError, LayerSpec, Retention
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.sim.replay.paths import Paths

UNITS = 4
"""Tokens that stand for a block: empty, begun, begun and grown, one short, full."""

FULL = (LayerSpec(0, "full_attention", (BufferSpec("kv", 1),)),)
"""A model of nothing but full attention: a block is a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """The cache that is replayed against, in real tokens; ``pool_slots`` per pool group or ``device_bytes``."""

    layers: tuple[LayerSpec, ...] = FULL
    pool_slots: tuple[int, ...] | None = None
    device_bytes: int | None = None
    eviction_policy: str = "lru"
    window_checkpoints: str = "every_chunk"
    chunk_tokens: int | None = None
    concurrency: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayResult:
    """What one cache did. ``hit_tokens`` int64 ``[n]`` by request; a refused one is longer than the cache is large.

    ``cached_pages`` are those of each layer group when all was over, ``peak_pages`` the most there were after any
    request, ``page_bytes`` the size of one; ``groups`` are words for them.
    """

    policy: str
    hit_tokens: Int64Array
    prompt_tokens: int
    num_refused: int
    cached_pages: tuple[int, ...]
    peak_pages: tuple[int, ...]
    page_bytes: tuple[int, ...]
    groups: tuple[str, ...]

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were reused."""
        return int(self.hit_tokens.sum()) / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def hit_rate_by_tier(self) -> dict[str, float]:
        """Share of prompt tokens reused from each tier."""
        return {"device": self.hit_rate}


def replay(paths: Paths, shape: CacheShape, on_request: Callable[[], None] = lambda: None) -> ReplayResult:
    """Send every request of ``paths`` through one cache. ``on_request()`` is called after each.

    Raises ``ConfigError`` for a window, chunk or checkpoint distance that does not end with a block.
    """
    manager = KVCacheManager(_config(paths, shape), with_memory=False)
    run = _Run(manager, shape)
    hits = np.zeros(len(paths), np.int64)
    peak = np.zeros(len(manager.groups), np.int64)
    for request in range(len(paths)):
        hits[request] = run.serve(*_in_units(paths, request)) // UNITS * paths.block_tokens
        peak = np.maximum(peak, _cached(manager))
        on_request()
    run.close_all()
    return ReplayResult(
        policy=shape.eviction_policy,
        hit_tokens=hits,
        prompt_tokens=int(paths.num_prompt.sum()),
        num_refused=run.num_refused,
        cached_pages=tuple(_cached(manager)),
        peak_pages=tuple(np.maximum(peak, _cached(manager)).tolist()),
        page_bytes=tuple(sum(group.row_bytes) for group in manager.groups),
        groups=tuple(_word(shape.layers, set(group.layer_ids)) for group in manager.groups),
    )


def _cached(manager: KVCacheManager) -> list[int]:
    pools = manager.statistics().pools
    return [pools[group.pool_group].slots - pools[group.pool_group].free for group in manager.groups]


def _word(layers: tuple[LayerSpec, ...], of_group: set[int]) -> str:
    one = next(layer for layer in layers if layer.layer_id in of_group)
    return f"{one.retention.value}{'' if one.window is None else f' {one.window}'} × {len(of_group)}"


class _Run:
    """Serves one request after the other; ``concurrency`` of them hold their pages."""

    def __init__(self, manager: KVCacheManager, shape: CacheShape) -> None:
        self._manager = manager
        self._limit = shape.concurrency
        self._chunk = manager.config.max_chunk_tokens
        self._open: deque[int] = deque()
        self.num_refused = 0

    def serve(self, tokens: Int32Array, num_prompt: int, declared: tuple[int, ...]) -> int:
        """Compute a prompt chunk by chunk and what follows it in one step; return how much was reused."""
        manager = self._manager
        if not manager.plan.fits_alone(len(tokens)):
            self.num_refused += 1
            return 0
        while len(self._open) >= self._limit:
            self._close_oldest()
        candidate = manager.candidate(tokens[:num_prompt], declared=declared)
        reused = manager.lookup(candidate)
        stops = (*candidate.declared, num_prompt)
        row, end = -1, reused
        while end < num_prompt:
            start, chunk = end, self._chunk
            while True:
                end = self._chunk_end(start, chunk, stops)
                quote = manager.quote()
                if quote.admit(candidate, end) if row < 0 else quote.add(np.array([row]), np.array([end])):
                    break
                chunk = self._make_room(chunk)
            with manager.reserve(quote) as reservation:
                reservation.dispatch()
                reservation.keep()
            row = int(reservation.rows[0])
            known = tokens[num_prompt:] if end == num_prompt else tokens[:0]
            self._settle(row, end, known)
        self._open.append(row)
        if len(tokens) > num_prompt:
            self._grow(row, len(tokens))
        return reused

    def close_all(self) -> None:
        """End whatever still holds pages."""
        while self._open:
            self._close_oldest()

    def _chunk_end(self, start: int, chunk: int, stops: tuple[int, ...]) -> int:
        stop = next(stop for stop in stops if stop > start)
        end = start + chunk
        return stop if end >= stop else max(end // UNITS * UNITS, start + 1)

    def _make_room(self, chunk: int) -> int:
        """Let the oldest go, or compute less at a time."""
        if self._open:
            self._close_oldest()
            return chunk
        if chunk <= self._manager.plan.least_chunk:
            raise InternalError("a request that fits alone finds no pages")
        return max(chunk // 2 // UNITS * UNITS, self._manager.plan.least_chunk)

    def _grow(self, row: int, end: int) -> None:
        manager = self._manager
        while True:
            quote = manager.quote()
            if quote.add(np.array([row]), np.array([end])):
                break
            if self._open[0] == row:
                raise InternalError("a request that fits alone finds no pages")
            self._close_oldest()
        with manager.reserve(quote) as reservation:
            reservation.dispatch()
            reservation.keep()
        self._settle(row, end, np.empty(0, np.int32))

    def _settle(self, row: int, end: int, known: Int32Array) -> None:
        tokens = known[None, :] if len(known) else np.full(1, -1, np.int32)
        self._manager.advance(np.array([row]), np.array([end]), tokens)

    def _close_oldest(self) -> None:
        self._manager.close(np.array([self._open.popleft()]))


def _in_units(paths: Paths, request: int) -> tuple[Int32Array, int, tuple[int, ...]]:
    """Return a request's tokens, the length of its prompt, and its declared prefixes, in units."""
    block = paths.block_tokens
    num_prompt, num_tokens = int(paths.num_prompt[request]), int(paths.num_tokens[request])
    prompt_units = units_of(num_prompt, block)
    total_units = units_of(num_tokens, block)
    if num_tokens > num_prompt and total_units == prompt_units:
        total_units += 1  # grown inside a block that it does not fill
    nodes = paths.of(request)
    tokens = np.zeros(total_units, np.int32)
    tokens[: len(nodes) * UNITS] = np.repeat(nodes, UNITS)
    declared = tuple(UNITS * (length // block) for length in paths.declared[request] if length >= block)
    return tokens, prompt_units, declared


def units_of(num_tokens: int, block_tokens: int) -> int:
    """Return how many units stand for so many tokens."""
    blocks, rest = divmod(num_tokens, block_tokens)
    return blocks * UNITS + (0 if rest == 0 else UNITS - 1 if rest == block_tokens - 1 else 1)


def _config(paths: Paths, shape: CacheShape) -> KVCacheConfig:
    block = paths.block_tokens
    longest = units_of(int(paths.num_tokens.max(initial=1)), block) + 1
    chunk = longest if shape.chunk_tokens is None else _scaled("chunk_tokens", shape.chunk_tokens, block)
    word, _, every = shape.window_checkpoints.partition(":")
    if every.isdigit() and int(every):
        every = str(_scaled("window_checkpoints", int(every), block))
    return KVCacheConfig(
        layers=tuple(_scaled_layer(layer, block) for layer in shape.layers),
        max_sequences=shape.concurrency,
        max_seq_len=longest,
        device_bytes=shape.device_bytes,
        pool_slots=shape.pool_slots,
        tokens_per_block=UNITS,
        max_open_steps=1,
        max_chunk_tokens=min(chunk, longest),
        typical_seq_len=int(paths.num_tokens.mean() * UNITS / block) + 1 if len(paths) else None,
        enable_partial_reuse=False,
        window_checkpoints=f"{word}:{every}" if every else word,
        separate_pools=True,
        eviction_policy=shape.eviction_policy,
    )


def _scaled(field: str, num_tokens: int, block_tokens: int) -> int:
    if num_tokens < 1 or num_tokens % block_tokens:
        raise ConfigError(f"{field}={num_tokens} must be a multiple of block_tokens={block_tokens}", field=field)
    return num_tokens // block_tokens * UNITS


def _scaled_layer(layer: LayerSpec, block_tokens: int) -> LayerSpec:
    """A layer whose pages are as large, of blocks of ``UNITS`` tokens."""
    if layer.retention is Retention.STATE or layer.ratio != 1 or layer.sink_tokens or layer.block_tokens is not None:
        raise ConfigError(
            f"layers: layer {layer.layer_id} ({layer.attention}) must be of full or sliding attention without sinks, "
            "compression and blocks of its own",
            field="layers",
        )
    buffers = tuple(
        BufferSpec(buffer.role, max(buffer.bytes_per_entry * block_tokens // UNITS, 1)) for buffer in layer.buffers
    )
    window = None if layer.window is None else _scaled("window", layer.window, block_tokens)
    return replace(layer, buffers=buffers, window=window)
