"""A file of runtime settings: YAML or JSON, the names of ``RuntimeConfig``, ``attention_dp_config`` nested."""

from __future__ import annotations

from pathlib import Path

from tidegate.base import ConfigError
from tidegate.cli.prompt_file import read_text

_MOST_LENGTH = 1 << 20


def read_config(path: Path, *, flag: str = "--config") -> dict[str, object]:
    """Return the settings of a file; ``ConfigError`` names the flag, the file and what is wrong with it.

    Only plain values are read: tags that would make objects are refused.
    """
    import yaml

    text = read_text(path)
    if len(text) > _MOST_LENGTH:
        raise ConfigError(f"{flag} {path}: must hold at most {_MOST_LENGTH} characters", field="config")
    try:
        settings = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{flag} {path}: not YAML or JSON: {error}", field="config") from None
    except RecursionError:
        raise ConfigError(f"{flag} {path}: nested too deeply", field="config") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise ConfigError(f"{flag} {path}: must hold names with their values, got {type(settings).__name__}")
    return settings
