"""How tables, progress and failures look in a terminal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tidegate.report import Table

_PIPED_WIDTH = 120


def show_table(table: Table, out: TextIO) -> None:
    """Print a table; numbers are aligned right."""
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left", title_style="bold")
    for index, column in enumerate(table.columns):
        is_text = any(isinstance(row[index], str) for row in table.rows)
        shown.add_column(column, justify="left" if is_text else "right")
    for row in table.texts():
        shown.add_row(*row)
    Console(file=out, width=None if out.isatty() else _PIPED_WIDTH, highlight=False).print(shown)


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr while the block runs, where somebody looks; yields what moves it by one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def show_log() -> None:
    """Let the library's own log reach stderr: what takes long the first time, and what will be slow."""
    logger = logging.getLogger("tidegate")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("tidegate: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def show_error(error: Exception) -> None:
    """Print one paragraph on stderr; control characters, which could drive the terminal, as escapes."""
    paragraph = " ".join(str(error).split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in paragraph)
    print(f"tidegate: {shown}", file=sys.stderr)


def quiet_libraries() -> None:
    """Settle what libraries read when they are imported.

    Threads that spin while they wait starve each other on a machine that is not ours alone, and stderr is for our own
    bar and for errors.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")
