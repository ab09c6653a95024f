"""All that a cache is, as plain values: equal images mean that nothing has moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.cache import KVCacheManager
from tidegate.scheduling import Scheduler


def cache_image(manager: KVCacheManager, prompts: Sequence[npt.ArrayLike]) -> dict[str, object]:
    """Return cursors, page tables, scratch, page records, counters, and what is cached of ``prompts``.

    Peaks are left out: they only ever grow.
    """
    core = manager._core
    sequences = core.sequences
    used = np.flatnonzero(sequences.mode != 0)  # what a free row holds is left over from somebody who is gone
    image: dict[str, object] = {
        name: getattr(sequences, name)[used].tolist()
        for name in ("capacity", "num_open", "history", "known", "published", "event", "begins")
    }
    image |= {"mode": sequences.mode.tolist(), "ends": sequences.ends[:, used].tolist()}
    for i, rows in enumerate(core.rows):
        image[f"pages {i}"] = rows.pages.tolist()
        image[f"slots {i}"] = rows.slots.tolist()
        image[f"scratch {i}"] = [None if held is None else held.tolist() for held in rows.scratch]
    for i, pool in enumerate(core.pools):
        pages = np.flatnonzero(pool.slot >= 0)
        # Who keeps a page cached, a node or the open leaf of a running row, is representation: look-ups tell what is.
        image[f"pool {i}"] = [(p, int(pool.slot[p]), int(pool.locks[p])) for p in pages.tolist()]
        image[f"counts {i}"] = (pool.num_free, pool.evictable, pool.doomed, pool.num_dropped)
    image["snapshots"] = {row: list(entries) for row, entries in core.pending_snapshots.items() if entries}
    image["counters"] = dataclasses.replace(manager.statistics(), pools=(), groups=(), reserved=())
    image["cached"] = [manager.probe(prompt).reused for prompt in prompts]
    return image


def scheduler_image(scheduler: Scheduler) -> dict[str, object]:
    """Return what waits and runs."""
    sequences = scheduler.sequences
    used = np.flatnonzero(sequences.is_used)
    return {
        "statistics": scheduler.statistics(),
        "rows": used.tolist(),
        "phase": sequences.phase[used].tolist(),
        "num_tokens": sequences.num_tokens[used].tolist(),
        "load": dataclasses.replace(scheduler.load(), prefill_tokens=0),  # that one is as of the last look-up
    }


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Name what differs."""
    return [name for name in before if before[name] != after[name]]
