"""Checks on page tables that need nothing but the tables and the model: who owns what, and who shares it."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.base import Int32Array, InternalError
from tidegate.testing.cache_model import GroupRule
from tidegate.testing.running import Running

Content = tuple[int, int, int, tuple[int, ...]]
"""What a page holds: group, block, salt and the tokens up to the block's last settled position."""


def owned_blocks(slots: Int32Array, row: int) -> set[int]:
    """Return the blocks of a row that have a page."""
    return {block for block, slot in enumerate(slots[row].tolist()) if slot >= 0}


def check_owned(running: Running, group: int, rule: GroupRule, slots: Int32Array) -> None:
    """Raise unless exactly the blocks that the cursors call for have a page."""
    found = owned_blocks(slots, running.row)
    model = running.model
    if found != model.owned(rule):
        raise InternalError(
            f"row {running.row}, group {group}: blocks {sorted(found)} own a page, not {sorted(model.owned(rule))}; "
            f"D={model.settled} H={model.history} C={model.steps}"
        )


def check_sharing(
    sequences: Sequence[Running], rules: Sequence[GroupRule], pool_groups: Sequence[int], arenas: Sequence[Int32Array]
) -> int:
    """Raise if two blocks share a slot without sharing their settled content; return how many blocks share one."""
    holders: dict[tuple[int, int], tuple[int, Content]] = {}
    num_shared = 0
    for group, rule in enumerate(rules):
        for running in sequences:
            line = arenas[group][running.row].tolist()
            for block in (block for block, slot in enumerate(line) if slot >= 0):
                content = _content(running, group, rule, block)
                other = holders.setdefault((pool_groups[group], line[block]), (running.row, content))
                if other == (running.row, content):
                    continue
                num_shared += 1
                if not _agree(other[1], content):
                    raise InternalError(
                        f"slot {line[block]} of pool group {pool_groups[group]} is both row {other[0]}'s {other[1]} "
                        f"and row {running.row}'s {content}"
                    )
    return num_shared


def _agree(one: Content, other: Content) -> bool:
    """Tell whether two blocks hold the same as far as both have settled."""
    both = min(len(one[3]), len(other[3]))
    return one[:3] == other[:3] and one[3][:both] == other[3][:both]


def _content(running: Running, group: int, rule: GroupRule, block: int) -> Content:
    history = running.model.history
    end = history if rule.is_state else min(history, (block + 1) * rule.block_tokens)
    return group, block, running.salt, tuple(running.model.tokens[:end])
