"""Step times from measured kernels."""

from __future__ import annotations

import numpy as np

from tidegate.engine.simulated.fleet_step import FleetStep, StepTime
from tidegate.engine.simulated.kernel_tables import KernelTables

_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)
_US = 1e-6
# Batches for which vLLM captures CUDA graphs: powers of two to 8, then every 8 to 256, every 16 to 512.
CAPTURED = np.array([1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)])


class TableCost:
    """Kernel by kernel, ``num_layers`` times over. ``host_s`` is what the host adds to every step.

    A step of decodes only is padded to the next batch for which a graph was captured. Several prompts in one step cost
    their attention one after the other; what they and the decodes take longer together than apart is that of one chunk
    of all their tokens behind their mean context.
    """

    def __init__(self, tables: KernelTables, *, num_layers: int, host_s: float) -> None:
        self._tables = tables
        self._num_layers = num_layers
        self._host_s = host_s
        self._known: dict[int, float] = {}

    def step_time(self, step: FleetStep) -> StepTime:
        """Return the time of one step."""
        times = [
            self._rank_s(step, rank, int(step.splits[rank]), int(step.splits[rank + 1]))
            for rank in range(step.num_ranks)
        ]
        return StepTime(np.array(times), 0.0, self._host_s)

    def _rank_s(self, step: FleetStep, rank: int, first: int, last: int) -> float:
        if first == last:
            return 0.0
        starts, ends = step.starts[first:last], step.ends[first:last]
        lengths = ends - starts
        tokens, is_decode = int(lengths.sum()), lengths == 1
        if is_decode.all() and tokens <= CAPTURED[-1]:
            tokens = int(CAPTURED[np.searchsorted(CAPTURED, tokens)])
        attention = self._attention_us(
            list(zip(lengths[~is_decode].tolist(), starts[~is_decode].tolist(), strict=True)),
            int(is_decode.sum()),
            float(ends[is_decode].mean()) if is_decode.any() else 0.0,
        )
        heads = sum(grid.at(float(step.num_logits[rank])) for grid in self._tables.per_sequence.values())
        return (self._dense_us(tokens) + self._num_layers * attention + heads) * _US

    def _dense_us(self, tokens: int) -> float:
        if tokens not in self._known:
            total = 0.0
            for layer, grid in self._tables.dense.items():
                count = 1 if layer in _ONCE else self._num_layers * (2 if layer in _TWICE else 1)
                total += count * grid.at(float(tokens))
            self._known[tokens] = total
        return self._known[tokens]

    def _attention_us(self, chunks: list[tuple[int, int]], num_decodes: int, keys: float) -> float:
        tables = self._tables
        prefill = sum(tables.prefill.at(chunk, before) for chunk, before in chunks)
        decode = tables.decode.at(num_decodes, keys) if num_decodes else 0.0
        if not chunks or not num_decodes:
            return prefill + decode
        tokens = sum(chunk for chunk, _ in chunks)
        before = sum(chunk * start for chunk, start in chunks) / tokens
        together = tables.mixed.at(tokens, before, num_decodes, keys)
        return prefill + decode + together - tables.prefill.at(tokens, before) - tables.decode.at(num_decodes, keys)
