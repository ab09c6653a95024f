"""Draws tokens per rank over steps as a PNG, one panel for each run. matplotlib is imported only when asked for."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tidegate.base import ConfigError, Int64Array, check_integer
from tidegate.report.token_history import TokenHistory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_WIDTH, _HEIGHT, _TITLE_HEIGHT, _DPI = 4.2, 2.1, 0.9, 120
_MAX_BINS = 240
"""Columns of a panel: more would be thinner than a pixel, and a rare busy step would vanish."""


def draw_tokens(histories: Mapping[str, TokenHistory], *, title: str = "", columns: int = 3) -> bytes:
    """Return a PNG with one panel for each history, named by its key, ``columns`` in a row, all with the same axes."""
    if not histories:
        raise ConfigError("a figure needs at least one history", field="histories")
    check_integer("columns", columns, 1, 16)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ConfigError("figures need matplotlib: install tidegate[bench]") from error
    wide = min(columns, len(histories))
    high = -(-len(histories) // wide)
    figure = Figure(figsize=(_WIDTH * wide, _HEIGHT * high + _TITLE_HEIGHT), dpi=_DPI, layout="constrained")
    panels = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False)
    num_steps = max(1, *(len(history.tokens) for history in histories.values()))
    most = max(1, *(int(history.tokens.max(initial=0)) for history in histories.values()))
    images = [
        _draw_panel(panel, name, history, num_steps, most)
        for panel, (name, history) in zip(panels.flat, histories.items(), strict=False)
    ]
    for panel in panels.flat[len(histories) :]:
        panel.set_axis_off()
    panels[0, 0].set_xlim(0, num_steps)
    panels[0, 0].set_ylim(max(history.tokens.shape[1] for history in histories.values()) - 0.5, -0.5)
    panels[0, 0].yaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    figure.colorbar(images[0], ax=panels, label="tokens in a step", shrink=0.8, pad=0.01)
    figure.supxlabel("step")
    figure.supylabel("rank")
    if title:
        figure.suptitle(title)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw_panel(panel: Axes, name: str, history: TokenHistory, num_steps: int, most: int) -> AxesImage:
    from matplotlib.colors import PowerNorm

    num_ranks = history.tokens.shape[1]
    width = -(-num_steps // _MAX_BINS)
    peaks = _peaks(history.tokens, width)
    # Linear colours would show a rank that decodes like one that idles, beside chunks of thousands of tokens.
    image = panel.imshow(
        peaks.T,
        aspect="auto",
        interpolation="nearest",
        extent=(0, max(len(peaks), 1) * width, num_ranks - 0.5, -0.5),
        norm=PowerNorm(0.5, vmin=0, vmax=most),
        cmap="magma_r",
    )
    panel.set_title(f"{name}\n{_facts(history)}", loc="left", fontsize="small")
    return image


def _peaks(tokens: Int64Array, width: int) -> Int64Array:
    """Return the most tokens of each rank among every ``width`` neighbouring steps."""
    missing = -len(tokens) % width
    padded = np.pad(tokens, ((0, missing), (0, 0)))
    peaks: Int64Array = padded.reshape(-1, width, tokens.shape[1]).max(axis=1)
    return peaks


def _facts(history: TokenHistory) -> str:
    facts = [f"{len(history.tokens)} steps, {history.step_s.sum():.3g} s"]
    if history.imbalance is not None:
        facts.append(f"max/mean {history.imbalance:.2f}")
    if history.tokens_per_s is not None:
        facts.append(f"{history.tokens_per_s:,.0f} tokens/s")
    return ", ".join(facts)
