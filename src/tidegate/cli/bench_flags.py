"""Flags that only ``tidegate bench`` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_LOAD = "Load"
_OUTPUT = "Output"

PromptsFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="One prompt per line, or .jsonl of text or tokens. Default: synthetic prompts.",
        rich_help_panel=_LOAD,
        show_default=False,
    ),
]
InputLenFlag = Annotated[int, typer.Option(help="Tokens of a synthetic prompt.", rich_help_panel=_LOAD)]
OutputLenFlag = Annotated[int, typer.Option(help="Most tokens to produce for each.", rich_help_panel=_LOAD)]
SharedLenFlag = Annotated[
    int, typer.Option(help="How many tokens of a synthetic prompt are the same in all.", rich_help_panel=_LOAD)
]
NumRequestsFlag = Annotated[
    int | None,
    typer.Option(help="Default: every prompt once, or 16.", rich_help_panel=_LOAD, show_default=False),
]
ConcurrencyFlag = Annotated[int, typer.Option(help="Most requests in flight.", rich_help_panel=_LOAD)]
RequestRateFlag = Annotated[
    float | None,
    typer.Option(
        help="Requests a second, arriving at random. Default: the next one when one has ended.",
        rich_help_panel=_LOAD,
        show_default=False,
    ),
]
JsonFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write everything as JSON.", rich_help_panel=_OUTPUT, show_default=False),
]
FigureFlag = Annotated[
    Path | None,
    typer.Option(metavar="PNG", help="Draw pages over time.", rich_help_panel=_OUTPUT, show_default=False),
]
