"""How a fake engine comes to know a prefix that nobody declared: it reads it from the cache, as a model would."""

from __future__ import annotations

import numpy as np

from tidegate.base import EngineError, Int64Array
from tidegate.engine import StepInput
from tidegate.testing.contexts import ContextBook
from tidegate.testing.entries import BoundLayer, Spans, Touched, entry_index, error_at, read_entries, state_entries
from tidegate.testing.fingerprints import UInt64Array, decode, follows


def believe(layers: tuple[BoundLayer, ...], contexts: ContextBook, step: StepInput, spans: Spans) -> None:
    """Take the prefix of every undeclared sequence from the cache, unless it is the one already known.

    A window group's sinks cannot be tied to its window: of an undeclared prefix they are believed as they are.
    """
    undeclared = ~contexts.is_declared(spans.rows)
    for place in np.flatnonzero(undeclared & (spans.starts == 0)):
        contexts.forget(int(spans.rows[place]))
    asked = np.flatnonzero(undeclared & (spans.starts > 0))
    if not len(asked):
        return
    rows, last = spans.rows[asked], spans.starts[asked] - 1
    known = contexts.reaches(rows, last)
    remembered = contexts.at(rows, np.where(known, last, 0))
    for layer in layers:
        if layer.is_state or (layer.spec.ratio == 1 and layer.spec.window != 1):
            found = _found(layer, step, spans, _last_entry(layer, asked, last))
            known &= remembered == found
            break
    for place in asked[~known]:
        _learn(layers, contexts, step, spans, int(place))


def _learn(layers: tuple[BoundLayer, ...], contexts: ContextBook, step: StepInput, spans: Spans, place: int) -> None:
    """Accept what the layers hold of one sequence; of two that differ, the one that reads more is believed."""
    start = int(spans.starts[place])
    at, starts = np.array([place]), spans.starts[place : place + 1]
    row, seen = int(spans.rows[place]), np.zeros(start, dtype=np.bool_)
    for layer in sorted(layers, key=_reach):
        if layer.is_state:
            touched = state_entries(at, starts - 1)
        else:
            touched = read_entries(layer, at, starts, starts)
        if not len(touched.position):
            continue
        hashes = _found(layer, step, spans, touched)
        if layer.spec.ratio == 1:
            linked = np.flatnonzero(np.diff(touched.position) == 1)
            broken = linked[~follows(hashes[linked], hashes[linked + 1])]
            if len(broken):
                wrong = int(broken[0]) + 1
                raise error_at(layer.buffers[0], spans.rows, touched, wrong, "does not follow the one before")
        contexts.learn(row, touched.position, hashes)
        seen[touched.position] = True
    contexts.end_learning(row, start, has_gaps=not seen.all())
    if not seen[-1]:
        raise EngineError(f"row {row}: no layer tells what precedes position {start}; declare the row", row=row)


def _reach(layer: BoundLayer) -> tuple[bool, int]:
    spec = layer.spec
    return spec.ratio == 1 and not layer.is_state, spec.window if spec.window is not None else 1 << 62


def _last_entry(layer: BoundLayer, places: Int64Array, positions: Int64Array) -> Touched:
    if layer.is_state:
        return state_entries(places, positions)
    return Touched(places, positions, positions // layer.per_block, positions % layer.per_block)


def _found(layer: BoundLayer, step: StepInput, spans: Spans, touched: Touched) -> UInt64Array:
    """Return the prefix hashes that a layer's first buffer holds."""
    buffer = layer.buffers[0]
    index = entry_index(layer, buffer, step.groups[layer.group], spans.rows, touched)
    words = np.ascontiguousarray(buffer.entries[index][:, :8]).view(np.uint64)[:, 0]
    return decode(buffer.key, touched.position, words)
