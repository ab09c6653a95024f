"""Draws pages over time as a PNG. matplotlib is imported when a figure is asked for: starting it costs a second."""

from __future__ import annotations

import io
from collections.abc import Sequence

from tidegate.base import ConfigError
from tidegate.report.page_history import PageHistory

_WIDTH, _HEIGHT, _DPI = 9.0, 2.6, 120


def draw_pages(history: PageHistory, *, title: str = "", totals: Sequence[int] = ()) -> bytes:
    """Return a PNG with one panel for each series; ``totals`` are the slots there are, drawn as a dashed line."""
    if not history.names:
        raise ConfigError("a figure needs at least one series")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("figures need matplotlib: install tidegate[bench]") from error
    count = len(history.names)
    figure = Figure(figsize=(_WIDTH, _HEIGHT * count), dpi=_DPI, layout="constrained")
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for index, (name, panel) in enumerate(zip(history.names, panels, strict=True)):
        pages = history.pages[:, index]
        panel.fill_between(history.times_s, pages, step="post", alpha=0.3, color=f"C{index}")
        panel.step(history.times_s, pages, where="post", color=f"C{index}")
        if index < len(totals):
            panel.axhline(totals[index], color="0.4", linestyle="--", linewidth=1)
        panel.set_title(f"{name}: peak {history.peaks[index]}", loc="left", fontsize="medium")
        panel.set_ylabel("pages")
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("seconds")
    if title:
        figure.suptitle(title)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()
