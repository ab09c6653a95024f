"""Flags that only ``tidegate replay`` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.base import ConfigError, shown

_TRACE = "Trace"
_CACHE = "Cache"
_OUTPUT = "Output"
_MOST_TEXT = 1 << 16

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="The trace's file.", show_default=False)]
FormatFlag = Annotated[
    str, typer.Option("--format", metavar="NAME", help="The trace's format.", rich_help_panel=_TRACE)
]
LimitFlag = Annotated[
    int | None,
    typer.Option(help="The first so many requests. Default: all.", rich_help_panel=_TRACE, show_default=False),
]
PoolBlocksFlag = Annotated[
    str, typer.Option(metavar="N1,N2,…", help="Sizes of the cache, in blocks.", rich_help_panel=_CACHE)
]
PolicyFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME1,NAME2,…", help="Eviction policies. Default: all.", rich_help_panel=_CACHE, show_default=False
    ),
]
BlockTokensFlag = Annotated[int, typer.Option(help="Tokens per block.", rich_help_panel=_CACHE)]
ConcurrencyFlag = Annotated[
    int, typer.Option(help="Requests that hold their pages at the same time.", rich_help_panel=_CACHE)
]
OutputsFlag = Annotated[
    bool, typer.Option("--outputs/--no-outputs", help="Cache what requests produced, too.", rich_help_panel=_CACHE)
]
BeladyFlag = Annotated[
    bool,
    typer.Option("--belady/--no-belady", help="Show Belady's bound and the way to it.", rich_help_panel=_OUTPUT),
]
OutFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write JSON, CSV and a figure there.", rich_help_panel=_OUTPUT, show_default=False
    ),
]


def read_sizes(text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between. Raises ``ConfigError`` for anything else."""
    words = text.split(",")
    if len(text) > _MOST_TEXT or not all(word.isascii() and word.isdecimal() and len(word) < 19 for word in words):
        raise ConfigError(f"--pool-blocks {shown(text)} must be whole numbers with commas between", field="pool_blocks")
    return tuple(int(word) for word in words)


def read_names(text: str | None) -> tuple[str, ...]:
    """Read names with commas between; none for None."""
    return () if text is None else tuple(text.split(","))
