"""Flags that only ``tidegate sim`` has, and how ``path=value`` is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.base import ConfigError, shown

_RUN = "What is simulated"
_SWEEP = "Sweep"
_OUTPUT = "Output"
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_MOST_TEXT = 1 << 16


class ExecutorName(StrEnum):
    """Where runs compute."""

    SERIAL = "serial"
    PROCESS = "process"
    RAY = "ray"


ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CONFIG]",
        help="Settings, YAML or JSON: of one run, or 'base', 'axes' and 'zip' of a sweep. Flags stand above them.",
        show_default=False,
    ),
]
ModelFlag = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A preset, or a config.json.", rich_help_panel=_RUN, show_default=False),
]
RanksFlag = Annotated[
    int | None, typer.Option(help="Attention-DP ranks in step.", rich_help_panel=_RUN, show_default=False)
]
HardwareFlag = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A preset, such as h200.", rich_help_panel=_RUN, show_default=False),
]
RequestsFlag = Annotated[
    int | None, typer.Option(help="Requests of the workload.", rich_help_panel=_RUN, show_default=False)
]
SeedFlag = Annotated[
    int | None, typer.Option(help="Seed of whatever is random.", rich_help_panel=_RUN, show_default=False)
]
SetFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Any setting by its dotted path, such as settings.max_num_tokens=4096. May be given more than once.",
        rich_help_panel=_RUN,
        show_default=False,
    ),
]
SweepFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="PATH=V1,V2,…",
        help="Run with each of these values; given more than once, with all combinations.",
        rich_help_panel=_SWEEP,
        show_default=False,
    ),
]
JobsFlag = Annotated[
    int | None, typer.Option(help="Runs at the same time.", rich_help_panel=_SWEEP, show_default=False)
]
ExecutorFlag = Annotated[
    ExecutorName | None,
    typer.Option(
        metavar="KIND",
        help="serial, process or ray. Default: processes when there are several jobs.",
        rich_help_panel=_SWEEP,
        show_default=False,
    ),
]
OutFlag = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write JSON, CSV and figures there.", rich_help_panel=_OUTPUT, show_default=False),
]
FiguresFlag = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw figures besides.", rich_help_panel=_OUTPUT)
]
ProgressFlag = Annotated[
    bool, typer.Option("--progress/--no-progress", help="Show a bar on a terminal.", rich_help_panel=_OUTPUT)
]


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``path=value`` flags; values are YAML. Raises ``ConfigError`` for one that is none, or comes twice."""
    settings: dict[str, Any] = {}
    for text in texts:
        path, value = _split("--set", text)
        if path in settings:
            raise ConfigError(f"--set {path} is given twice", field=path)
        settings[path] = _parsed("--set", text, value)
    return settings


def read_axes(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read ``path=v1,v2`` flags; each value is YAML, so that a list is one. The same errors."""
    axes: dict[str, list[Any]] = {}
    for text in texts:
        path, value = _split("--sweep", text)
        if path in axes:
            raise ConfigError(f"--sweep {path} is given twice", field=path)
        values = _parsed("--sweep", text, f"[{value}]")
        if not isinstance(values, list) or not values:
            raise ConfigError(f"--sweep {shown(text)} must be PATH=V1,V2,…", field=path)
        axes[path] = values
    return axes


def _split(flag: str, text: str) -> tuple[str, str]:
    path, is_there, value = text.partition("=")
    if not path or not is_there or len(text) > _MOST_TEXT:
        raise ConfigError(f"{flag} {shown(text)} must be a dotted path, '=' and a value", field=flag)
    return path, value


def _parsed(flag: str, text: str, value: str) -> Any:
    import yaml

    try:
        return _with_exponents(yaml.safe_load(value))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"{flag} {shown(text)}: the value is not YAML", field=flag) from None


def _with_exponents(value: Any) -> Any:
    """Read 1e6 as a number; YAML 1.1 wants a dot and a sign in it."""
    if isinstance(value, list):
        return [_with_exponents(item) for item in value]
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
