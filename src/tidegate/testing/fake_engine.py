"""A model-free engine that proves, read by read, that every page holds what it should.

Each step writes fingerprints of (layer, buffer, position, whole token prefix) into the pages it is given, layer by
layer, and reads all that a real engine would read. Its next token is a function of the whole context, so a greedy run
equals ``continuation`` exactly when the cache kept the right content.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, EngineError, GroupTables, Int64Array, KVLayout, LayerSpec, PoolMemory
from tidegate.engine import StepInput
from tidegate.testing.beliefs import believe
from tidegate.testing.contexts import ContextBook
from tidegate.testing.entries import (
    BoundBuffer,
    BoundLayer,
    Spans,
    Touched,
    bind_layers,
    entry_index,
    error_at,
    read_entries,
    spans_of,
    state_entries,
    written_entries,
)
from tidegate.testing.fingerprints import choose_tokens, encode, prefix_hashes, root, spread

_WORD_BYTES = 8


class FakeEngine:
    """The ``Engine`` protocol over fingerprints instead of a model.

    A row whose context was declared is checked against it. The prefix of any other row is read from the cache, must be
    one chain of tokens, and all layers must agree on it; then the output shows whose prefix it was.
    """

    def __init__(self, layers: Sequence[LayerSpec], *, vocab_size: int = 32) -> None:
        if vocab_size < 1:
            raise ConfigError(f"vocab_size={vocab_size} must be at least 1")
        for spec in layers:
            for buffer in spec.buffers:
                if buffer.bytes_per_entry < _WORD_BYTES:
                    raise ConfigError(
                        f"layer {spec.layer_id}, buffer {buffer.role!r}: bytes_per_entry={buffer.bytes_per_entry}; "
                        f"a fingerprint needs at least {_WORD_BYTES} bytes"
                    )
        self._specs = tuple(layers)
        self._vocab_size = vocab_size
        self._layers: tuple[BoundLayer, ...] = ()
        self._contexts = ContextBook()
        self._fails_next = False

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._vocab_size

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        """Declare the layers."""
        return self._specs

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        """Take the pools. Raises ``ConfigError`` where a sub-page and a layer's block disagree in size."""
        self._layers = bind_layers(self._specs, layout, pools)

    def declare(self, row: int, tokens: Sequence[int], salt: int = 0) -> None:
        """State the context that ``row`` begins with, so that reuse is checked against it and not believed."""
        self._contexts.declare(row, tokens, salt)

    def forget(self, row: int) -> None:
        """Undo ``declare``: the row goes to another sequence."""
        self._contexts.forget(row)

    def fail_next(self) -> None:
        """Make the next forward raise ``EngineError`` after its first layer, with part of the step written."""
        self._fails_next = True

    def continuation(self, tokens: Sequence[int], count: int, salt: int = 0) -> list[int]:
        """Return the tokens that a greedy run produces after ``tokens``, computed without any cache."""
        before = np.array([root(salt)], dtype=np.uint64)
        given = np.asarray(tokens, dtype=np.int64)
        produced: list[int] = []
        while len(produced) < count:
            before = prefix_hashes(before, given, np.array([0, len(given)]))[-1:]
            given = choose_tokens(before, self._vocab_size)
            produced.append(int(given[0]))
        return produced

    def forward(self, step: StepInput) -> npt.NDArray[np.float32]:
        """Write and read every layer, then return logits that are 1 at the chosen token and 0 elsewhere."""
        spans = spans_of(step)
        believe(self._layers, self._contexts, step, spans)
        hashes = self._contexts.extend(spans.rows, spans.starts, step.token_ids, spans.cu_seqlens)
        touched: dict[int, tuple[Touched, Touched]] = {}
        for layer in self._layers:
            if layer.group not in touched:
                touched[layer.group] = _touched(layer, spans)
            self._run_layer(layer, step.groups[layer.group], spans.rows, *touched[layer.group])
            if self._fails_next:
                self._fails_next = False
                raise EngineError(f"layer {layer.spec.layer_id}: failed as told", layer=layer.spec.layer_id)
        logits = np.zeros((len(step.logit_positions), self._vocab_size), dtype=np.float32)
        chosen = choose_tokens(hashes[step.logit_positions], self._vocab_size)
        logits[np.arange(len(chosen)), chosen] = 1.0
        return logits

    def _run_layer(
        self, layer: BoundLayer, tables: GroupTables, rows: Int64Array, written: Touched, read: Touched
    ) -> None:
        """Write all sequences' entries and then read, or for a state layer read the old state and then replace it."""
        if layer.is_state:
            for buffer in layer.buffers:
                self._check(buffer, entry_index(layer, buffer, tables, rows, read), rows, read)
        for buffer in layer.buffers:
            words = encode(buffer.key, written.position, self._contexts.at(rows[written.place], written.position))
            index = entry_index(layer, buffer, tables, rows, written)
            buffer.entries[index] = spread(words, buffer.entries.shape[1])
        if not layer.is_state:
            for buffer in layer.buffers:
                self._check(buffer, entry_index(layer, buffer, tables, rows, read), rows, read)

    def _check(self, buffer: BoundBuffer, index: Int64Array, rows: Int64Array, read: Touched) -> None:
        """Compare entries with what the rows' contexts say they hold."""
        words = encode(buffer.key, read.position, self._contexts.at(rows[read.place], read.position))
        found = buffer.entries[index]
        wrong = np.flatnonzero((found != spread(words, buffer.entries.shape[1])).any(axis=1))
        if len(wrong):
            what = "another fingerprint" if found[wrong[0]].any() else "nothing"
            raise error_at(buffer, rows, read, int(wrong[0]), f"entry {int(index[wrong[0]])} holds {what}")


def _touched(layer: BoundLayer, spans: Spans) -> tuple[Touched, Touched]:
    """Return the entries of a layer's group that a step writes and reads."""
    places = np.arange(len(spans.rows))
    if layer.is_state:
        continued = np.flatnonzero(spans.starts > 0)
        return state_entries(places, spans.ends - 1), state_entries(continued, spans.starts[continued] - 1)
    return written_entries(layer, spans), read_entries(layer, places, spans.starts, spans.ends)
