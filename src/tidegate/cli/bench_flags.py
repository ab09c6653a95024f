"""Flags that only ``tidegate bench`` has."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_LOAD = "Load"
_RANKS = "Ranks"
_OUTPUT = "Output"


class Scenario(StrEnum):
    """Prepared experiments."""

    DEFERRAL = "deferral"


class ScenarioEngine(StrEnum):
    """What computes in a scenario."""

    FAKE = "fake"
    REFERENCE = "reference"


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
ConcurrencyFlag = Annotated[
    int | None,
    typer.Option(
        help="Most requests in flight, over all ranks. Default: 8; 256 in a scenario.",
        rich_help_panel=_LOAD,
        show_default=False,
    ),
]
RequestRateFlag = Annotated[
    float | None,
    typer.Option(
        help="Requests a second, arriving at random. Default: the next one when one has ended.",
        rich_help_panel=_LOAD,
        show_default=False,
    ),
]
RanksFlag = Annotated[
    int | None,
    typer.Option(
        help="Attention-DP ranks, one process each. Default: 1; 8 in a scenario.",
        rich_help_panel=_RANKS,
        show_default=False,
    ),
]
ConfigFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Runtime settings, YAML or JSON, such as attention_dp_config. They stand above flags.",
        rich_help_panel=_RANKS,
        show_default=False,
    ),
]
ScenarioFlag = Annotated[
    Scenario | None,
    typer.Option(
        metavar="NAME",
        help="deferral: each deferral policy under each kind of balance, instead of one load.",
        rich_help_panel=_RANKS,
        show_default=False,
    ),
]
EngineFlag = Annotated[
    ScenarioEngine,
    typer.Option(
        metavar="KIND",
        help="Of a scenario. fake: every page is checked and time is counted. reference: a real model in real time.",
        rich_help_panel=_RANKS,
    ),
]
PoolShareFlag = Annotated[
    float,
    typer.Option(
        help="Of a scenario: the cache of a rank, as a share of what its part of the concurrency needs at most.",
        rich_help_panel=_RANKS,
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
