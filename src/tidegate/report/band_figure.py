"""Draws numbers of many members over time: their mean, and the band between least and most, as a PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError

Float64Array = npt.NDArray[np.float64]

_WIDTH, _HEIGHT, _DPI = 9.0, 2.2, 120
_MAX_BINS = 720
"""Columns of a panel: more would be thinner than a pixel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """``values`` ``[samples, members]`` at ``times_s`` ``[samples]``, seconds; ``limit`` is drawn as a dashed line."""

    name: str
    unit: str
    times_s: Float64Array
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64]
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] == 0 or self.times_s.shape != self.values.shape[:1]:
            raise ConfigError(
                f"values of shape {list(self.values.shape)} must be [samples, members], at least one member, and "
                f"times_s of shape {list(self.times_s.shape)} have one entry for each sample",
                field="values",
            )

    def lines(self) -> tuple[Float64Array, Float64Array, Float64Array, Float64Array]:
        """Return times, least, mean and most; of neighbours that must share a column, the extremes stay."""
        width = max(1, -(-len(self.values) // _MAX_BINS))
        starts = np.arange(0, len(self.values), width)
        if not len(starts):
            nothing = np.zeros(0)
            return nothing, nothing, nothing, nothing
        counts = np.diff(np.append(starts, len(self.values)))
        least = np.minimum.reduceat(self.values.min(axis=1), starts).astype(np.float64)
        most = np.maximum.reduceat(self.values.max(axis=1), starts).astype(np.float64)
        mean = np.add.reduceat(self.values.mean(axis=1), starts) / counts
        return self.times_s[starts], least, mean, most


def draw_bands(bands: Sequence[Band], *, title: str = "") -> bytes:
    """Return a PNG with one panel under another, all with the same time axis."""
    if not bands:
        raise ConfigError("a figure needs at least one band", field="bands")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: install tidegate[bench]") from error
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(bands) + 0.4), dpi=_DPI, layout="constrained")
    panels = figure.subplots(len(bands), 1, sharex=True, squeeze=False)[:, 0]
    for index, (band, panel) in enumerate(zip(bands, panels, strict=True)):
        times, least, mean, most = band.lines()
        panel.fill_between(times, least, most, step="post", alpha=0.3, color=f"C{index % 10}", linewidth=0)
        panel.step(times, mean, where="post", color=f"C{index % 10}", linewidth=1.2)
        if band.limit is not None:
            panel.axhline(band.limit, color="0.4", linestyle="--", linewidth=1)
        panel.set_title(band.name.replace("$", r"\$"), loc="left", fontsize="medium")
        panel.set_ylabel(band.unit)
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("seconds")
    if title:
        figure.suptitle(title)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()
