"""Policies by name: every module of the package ``policies`` is one, named as it is, with a function ``make``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import cast

from tidegate.base import ConfigError, shown
from tidegate.storage.eviction import policies
from tidegate.storage.eviction.policy import PolicyMaker


def policy_names() -> tuple[str, ...]:
    """Return the names of all eviction policies, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(policies.__path__)))


def check_policy(field: str, name: object) -> None:
    """Raise ``ConfigError`` unless ``name`` is an eviction policy's."""
    if not isinstance(name, str) or name not in policy_names():
        raise ConfigError(f"{field}={shown(name)} must be one of {', '.join(policy_names())}", field=field, value=name)


def policy_maker(name: str) -> PolicyMaker:
    """Return what makes the policy of that name. Raises ``ConfigError`` for a name that is none."""
    check_policy("eviction_policy", name)
    return cast(PolicyMaker, importlib.import_module(f"{policies.__name__}.{name}").make)
