"""Draws one number against another, a curve for each name, as a PNG. matplotlib is imported only when asked for."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from tidegate.base import ConfigError

_WIDTH, _HEIGHT, _DPI = 6.4, 4.4, 120
_MARKERS = "osD^vP*X"


def draw_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str = "",
    across: str = "",
    up: str = "",
    limit: float | None = None,
) -> bytes:
    """Return a PNG of points ``(across, up)`` joined in their order, ``across`` on a logarithmic axis.

    ``limit`` is drawn as a dashed line.
    """
    if not curves or not all(curves.values()):
        raise ConfigError("a figure needs at least one point in each curve", field="curves")
    if any(x <= 0 for points in curves.values() for x, _ in points):
        raise ConfigError("a logarithmic axis needs numbers > 0", field="curves")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: install tidegate[bench]") from error
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, layout="constrained")
    panel = figure.subplots()
    for place, (name, points) in enumerate(curves.items()):
        panel.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=f"C{place % 10}",
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=4,
            linewidth=1.2,
            label=name.replace("$", r"\$"),
        )
    if limit is not None:
        panel.axhline(limit, color="0.4", linestyle="--", linewidth=1, label="endless")
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(color="0.9", linewidth=0.6)
    panel.legend(fontsize="small")
    if title:
        panel.set_title(title.replace("$", r"\$"), loc="left", fontsize="medium")
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()
