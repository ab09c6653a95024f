"""What is shown of a run: tables as data, figures, and files that are written whole or not at all."""

from tidegate.report.output_file import OutputFile
from tidegate.report.page_figure import draw_pages
from tidegate.report.page_history import PageHistory, PageRecorder
from tidegate.report.table import Cell, Table
from tidegate.report.token_figure import draw_tokens
from tidegate.report.token_history import TokenHistory

__all__ = ["Cell", "OutputFile", "PageHistory", "PageRecorder", "Table", "TokenHistory", "draw_pages", "draw_tokens"]
