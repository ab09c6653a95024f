"""Draws what is won against what it costs, with the frontier, as a PNG. matplotlib is imported only when asked for."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.base import ConfigError, check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT, _DPI = 6.4, 4.6, 120
_MOST_LABELS = 24
_MARKERS = "osD^vP*X"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """One run: ``cost`` is better when lower, ``gain`` when higher. Points of one ``series`` have one colour."""

    label: str
    cost: float
    gain: float
    series: str = ""


def pareto_frontier(points: Sequence[ParetoPoint]) -> tuple[int, ...]:
    """Return the places of points that no other beats: none costs as little and gains as much, and one of them better.

    By rising cost. Of equal points the first counts.
    """
    frontier, best = list[int](), float("-inf")
    for place in sorted(range(len(points)), key=lambda i: (points[i].cost, -points[i].gain, i)):
        if points[place].gain > best:
            frontier.append(place)
            best = points[place].gain
    return tuple(frontier)


def draw_pareto(
    panels: Mapping[str, Sequence[ParetoPoint]],
    *,
    title: str = "",
    cost: str = "mean time to first token (s)",
    gain: str = "output tokens/s",
    columns: int = 3,
) -> bytes:
    """Return a PNG with one panel for each key, ``columns`` in a row.

    The frontier is a line, and its points are ringed and labelled; with few points, all are labelled.
    """
    if not panels or not all(panels.values()):
        raise ConfigError("a figure needs at least one point in each panel", field="panels")
    check_integer("columns", columns, 1, 16)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: install tidegate[bench]") from error
    wide = min(columns, len(panels))
    high = -(-len(panels) // wide)
    figure = Figure(figsize=(_WIDTH * wide, _HEIGHT * high), dpi=_DPI, layout="constrained")
    axes = figure.subplots(high, wide, squeeze=False)
    series = sorted({point.series for points in panels.values() for point in points})
    for panel, (name, points) in zip(axes.flat, panels.items(), strict=False):
        _draw_panel(panel, points, series)
        panel.set_title(name, loc="left", fontsize="medium")
        panel.set_xlabel(cost)
        panel.set_ylabel(gain)
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize="small")
    if title:
        figure.suptitle(title)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw_panel(panel: Axes, points: Sequence[ParetoPoint], series: Sequence[str]) -> None:
    frontier = pareto_frontier(points)
    panel.plot(
        [points[i].cost for i in frontier],
        [points[i].gain for i in frontier],
        color="0.5",
        linewidth=1,
        label="frontier",
        zorder=1,
    )
    for place, name in enumerate(series):
        own = [point for point in points if point.series == name]
        panel.scatter(
            [point.cost for point in own],
            [point.gain for point in own],
            s=28,
            color=f"C{place % 10}",
            marker=_MARKERS[place // 10 % len(_MARKERS)],
            label=_literal(name or "run"),
            zorder=2,
        )
    for place in frontier if len(points) > _MOST_LABELS else range(len(points)):
        point = points[place]
        weight = "bold" if place in frontier else "normal"
        at = (point.cost, point.gain)
        panel.annotate(
            _literal(point.label), at, xytext=(4, 3), textcoords="offset points", fontsize="x-small", fontweight=weight
        )
    panel.scatter(
        [points[i].cost for i in frontier],
        [points[i].gain for i in frontier],
        s=70,
        facecolors="none",
        edgecolors="0.3",
        linewidths=1,
        zorder=3,
    )
    panel.margins(0.22, 0.1)
    panel.grid(color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)


def _literal(text: str) -> str:
    """Keep somebody's dollar from being read as a formula."""
    return text.replace("$", r"\$")
