"""Small workloads, and a cost model that only counts tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidegate.engine.simulated import FleetStep, StepTime
from tidegate.runtime import RuntimeConfig
from tidegate.testing.layouts import full, stacked, window
from tidegate.workload import Content, Workload, WorkloadRequest

LAYERS = stacked(full(), full(), window(8), window(8))


class TokenCost:
    """A millisecond a step and ten microseconds for each token of the busiest rank."""

    def step_time(self, step: FleetStep) -> StepTime:
        """Return the time of one step."""
        owner = np.repeat(np.arange(step.num_ranks), np.diff(step.splits))
        tokens = np.bincount(owner, weights=step.ends - step.starts, minlength=step.num_ranks)
        return StepTime(np.asarray(tokens * 1e-5, dtype=np.float64), 1e-3, 0.0)


def config(**settings: object) -> RuntimeConfig:
    values: Mapping[str, object] = {
        "max_seq_len": 256,
        "tokens_per_block": 4,
        "max_batch_size": 8,
        "max_num_tokens": 64,
        "device_bytes": 1 << 16,
        "deferral": "reserve_late",
    }
    return RuntimeConfig.from_settings({**values, **settings})


def text(key: int, length: int, offset: int = 0) -> Content:
    return Content(np.array([key]), np.array([offset]), np.array([length]))


def joined(*contents: Content) -> Content:
    columns = [(c.keys, c.offsets, c.lengths) for c in contents]
    return Content(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def single_turns(count: int, *, seed: int = 1, every_s: float = 0.0) -> Workload:
    """Requests of their own, one after the other."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 120, (count, 2))
    return Workload(
        source="single turns",
        requests=tuple(
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=text(10 + i, int(lengths[i, 0])),
                num_output_tokens=1 + int(lengths[i, 1]) // 4,
                output_key=10_000 + i,
                arrival_s=every_s * i,
            )
            for i in range(count)
        ),
    )


def conversations(count: int, turns: int, *, think_s: float = 0.01) -> Workload:
    """Users who read each answer and go on; all of them begin with the same words."""
    requests = []
    for user in range(count):
        said = text(1, 16)
        for turn in range(turns):
            key = 100 * (user + 1) + turn
            said = joined(said, text(key, 5 + user))
            requests.append(
                WorkloadRequest(
                    request_id=f"{user}.{turn}",
                    prompt=said,
                    num_output_tokens=6,
                    output_key=key + 50,
                    after=f"{user}.{turn - 1}" if turn else None,
                    think_s=think_s,
                    conversation_id=str(user),
                )
            )
            said = joined(said, text(key + 50, 6))
    return Workload(source="conversations", requests=tuple(requests))
