"""What is shown of a run: tables as data, figures, and files that are written whole or not at all."""

from tidegate.report.band_figure import Band, draw_bands
from tidegate.report.curve_figure import draw_curves
from tidegate.report.output_file import OutputFile
from tidegate.report.output_folder import OutputFolder
from tidegate.report.page_figure import draw_pages
from tidegate.report.page_history import PageHistory, PageRecorder
from tidegate.report.pareto_figure import ParetoPoint, draw_pareto, pareto_frontier
from tidegate.report.table import Cell, Table
from tidegate.report.token_figure import draw_tokens
from tidegate.report.token_history import TokenHistory

__all__ = [
    "Band",
    "Cell",
    "OutputFile",
    "OutputFolder",
    "PageHistory",
    "PageRecorder",
    "ParetoPoint",
    "Table",
    "TokenHistory",
    "draw_bands",
    "draw_curves",
    "draw_pages",
    "draw_pareto",
    "draw_tokens",
    "pareto_frontier",
]
