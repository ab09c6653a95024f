"""Choices: one way to draw small numbers, whether a seed or Hypothesis decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Choose = Callable[[int, int], int]
"""``choose(least, most)`` returns an integer of that closed range."""

_T = TypeVar("_T")


def seeded(seed: int) -> Choose:
    """Return choices that a seed decides."""
    return random.Random(seed).randint


def one_of(choose: Choose, options: Sequence[_T]) -> _T:
    """Return one of the options; the first is the simplest."""
    return options[choose(0, len(options) - 1)]


def chance(choose: Choose, percent: int) -> bool:
    """Return True in ``percent`` of a hundred cases."""
    return choose(0, 99) >= 100 - percent


def subset(choose: Choose, options: Sequence[_T], most: int) -> list[_T]:
    """Return up to ``most`` distinct options, in random order."""
    rest = list(options)
    count = choose(0, min(most, len(rest)))
    return [rest.pop(choose(0, len(rest) - 1)) for _ in range(count)]
