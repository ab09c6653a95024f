"""Which flags belong to a scenario and which to a load of one's own: a flag that would be ignored is refused."""

from __future__ import annotations

import typer

from tidegate.base import ConfigError

_OF_BOTH = ("ranks", "num_requests", "concurrency", "seed", "model", "json", "figure", "scenario")
_OF_SCENARIOS = ("engine", "pool_share")


def check_given(ctx: typer.Context, *, is_scenario: bool) -> None:
    """Raise ``ConfigError`` naming flags that were given and have no meaning here."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    given = [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
    if is_scenario:
        astray = [name for name in given if name not in _OF_BOTH + _OF_SCENARIOS]
        why = f"a scenario takes {_flags([*_OF_BOTH, *_OF_SCENARIOS])}"
    else:
        astray = [name for name in given if name in _OF_SCENARIOS]
        why = "they belong to --scenario"
    if astray:
        raise ConfigError(f"{_flags(astray)}: of no use here; {why}", field=astray[0])


def _flags(names: list[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)
