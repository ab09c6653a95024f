"""The model itself, on the worked numbers of the contract's section on reuse."""

from __future__ import annotations

import pytest

from tidegate.testing.cache_model import GroupRule, ModelSequence, ModelTree, live_blocks

FULL = GroupRule(4)
WINDOW = GroupRule(4, window=8)
PROMPT = list(range(100, 132))


@pytest.fixture
def cached() -> ModelTree:
    """A prompt of 32 tokens of which the window group kept blocks 6 and 7."""
    tree = ModelTree([FULL, WINDOW], unit=4)
    for block in range(8):
        tree.publish(None, PROMPT, 0, block)
    for block in (6, 7):
        tree.publish(None, PROMPT, 1, block)
    return tree


@pytest.mark.parametrize(
    ("prompt", "partial", "reused"),
    [
        ([*PROMPT[:20], 1, 2, 3, 4], True, 0),
        ([*PROMPT, 1, 2, 3, 4, 5, 6, 7, 8], True, 32),
        (PROMPT, True, 31),
        (PROMPT, False, 0),
    ],
)
def test_one_length_for_all_groups(cached: ModelTree, prompt: list[int], partial: bool, reused: int) -> None:
    assert cached.longest_reuse(None, prompt, partial=partial) == reused


def test_scopes_share_nothing(cached: ModelTree) -> None:
    assert cached.longest_reuse("other", PROMPT) == 0


def test_a_state_is_reused_only_at_its_snapshot() -> None:
    tree = ModelTree([FULL, GroupRule(1 << 40, is_state=True)], unit=4)
    for block in range(8):
        tree.publish(None, PROMPT, 0, block)
    tree.publish(None, PROMPT[:16], 1, 0)

    assert tree.longest_reuse(None, PROMPT) == 16


def test_a_plain_window_owns_what_the_next_query_reads() -> None:
    assert live_blocks(32, 33, ((32, 33),), WINDOW, 0) == {6, 7, 8}


def test_settling_below_the_slack_keeps_what_a_rewind_may_read() -> None:
    sequence = ModelSequence([0] * 40, 16, 16, max_rewind_len=3)
    sequence.open(20)

    sequence.settle(20)

    assert sequence.settled == 17
