"""Hypothesis strategies over the same choices that a seeded walk makes. Needs the ``dev`` extra."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.testing.cache_model import GroupRule
from tidegate.testing.choices import Choose
from tidegate.testing.layouts import Layout, build_layout, build_prompt, build_texts


def choices(draw: Callable[[SearchStrategy[int]], int]) -> Choose:
    """Let Hypothesis decide, and shrink, what a seed would."""
    return lambda least, most: draw(st.integers(least, most))


@st.composite
def layouts(draw: DrawFn) -> Layout:
    """Models of one to three layer groups."""
    return build_layout(choices(draw))


@st.composite
def window_rules(draw: DrawFn) -> GroupRule:
    """A window group with sinks, window and block in any proportion."""
    return GroupRule(
        block_tokens=draw(st.sampled_from((1, 2, 3, 4, 8))),
        window=draw(st.integers(1, 20)),
        sink_tokens=draw(st.sampled_from((0, 0, 1, 5, 8))),
        uses_scratch=True,
    )


@st.composite
def prompt_sets(draw: DrawFn, count: int = 4, length: int = 24, vocab_size: int = 3) -> list[list[int]]:
    """Prompts that share prefixes of any length."""
    choose = choices(draw)
    texts = build_texts(choose, 3, length, vocab_size)
    return [build_prompt(choose, texts, length, vocab_size) for _ in range(count)]
