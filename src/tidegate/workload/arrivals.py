"""When requests come, in seconds after the start."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.workload.fields import Fields

Float64Array = npt.NDArray[np.float64]
ARRIVALS = ("at_once", "poisson", "gamma", "uniform", "bursts", "closed")


def draw_arrivals(path: str, spec: object, count: int, draw: np.random.Generator) -> tuple[Float64Array, int | None]:
    """Return arrival times, ascending float64 ``[count]``, and the concurrency of a closed load.

    Kinds: ``at_once``; ``uniform`` (rate per second); ``poisson`` (rate); ``gamma`` (rate, and cv of the gaps: above 1
    is burstier than Poisson); ``bursts`` (rate of all requests, ``size`` at a time, bursts as Poisson); ``closed``
    (concurrency: so many in flight at once). Raises ``ConfigError``.
    """
    fields = Fields(path, {"kind": spec} if isinstance(spec, str) else spec)
    kind, concurrency = fields.choice("kind", ARRIVALS), None
    gaps = np.zeros(count)
    if kind == "closed":
        concurrency = fields.integer("concurrency", low=1)
    elif kind != "at_once":
        mean = 1.0 / fields.positive("rate")
        if kind == "poisson":
            gaps = draw.exponential(mean, count)
        elif kind == "gamma":
            shape = fields.positive("cv") ** -2
            gaps = draw.gamma(shape, mean / shape, count)
        elif kind == "uniform":
            gaps = np.full(count, mean)
        else:
            size = fields.integer("size", low=1)
            gaps[::size] = draw.exponential(mean * size, len(gaps[::size]))
    fields.done()
    return np.cumsum(gaps), concurrency
