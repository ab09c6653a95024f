"""Which blocks own a page, as pure functions of a sequence's cursors.

All positions are tokens, all ranges half-open block ranges ``(begin, end)``. ``D <= H = C0 <= C1 <= … <= Cn`` are the
cursors: no query will ever again be below ``D``; positions below ``H`` hold valid keys and values; ``Ci`` are the ends
of the open steps. ``R`` is how far below the end of a step settling may fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Range = tuple[int, int]


class Rule(NamedTuple):
    """What the ranges of a layer group depend on. ``window`` None: everything is kept. ``scratch_per_slot`` 0: off."""

    block_tokens: int
    window: int | None
    sink_blocks: int
    scratch_per_slot: int
    max_rewind_len: int


def ceil_div(a: int, b: int) -> int:
    """Divide, rounding up."""
    return -(-a // b)


def stale(history: int, rule: Rule) -> Range:
    """Blocks that no query at ``history`` or later reads."""
    if rule.window is None:
        return 0, 0
    begin = min(ceil_div(history, rule.block_tokens), rule.sink_blocks)
    return begin, max(begin, (history + 1 - rule.window) // rule.block_tokens)


def scratch(previous: int, end: int, rule: Rule) -> Range:
    """Blocks written and last read inside the step from ``previous`` to ``end``."""
    if not rule.scratch_per_slot or rule.window is None:
        return 0, 0
    begin, stop = stale(max(0, end - rule.max_rewind_len), rule)
    begin = max(begin, ceil_div(previous, rule.block_tokens))
    stop = min(stop, ceil_div(end, rule.block_tokens))
    return (begin, stop) if begin < stop else (0, 0)


def scratch_slots(blocks: Range, rule: Rule) -> int:
    """Slots that hold the scratch blocks of the layer now executing."""
    return ceil_div(blocks[1] - blocks[0], rule.scratch_per_slot) if blocks[1] > blocks[0] else 0


class OpenStep(NamedTuple):
    """A step that is planned or in flight: it computes ``begin … end``, and may use scratch or not.

    It keeps its ``begin`` when the step before it settles short of it, so that settling never needs a page.
    """

    begin: int
    end: int
    scratch: bool = True


def live(settled: int, capacity: int, steps: Sequence[OpenStep], rule: Rule) -> list[Range]:
    """Blocks that own a page: ``[0, ceil(C/B)) - stale(D) -`` the scratch blocks of every open step.

    ``settled`` is ``D``, ``capacity`` the last cursor.
    """
    last = ceil_div(capacity, rule.block_tokens)
    if rule.window is None:
        return [(0, last)] if last else []
    gaps = [stale(settled, rule)]
    gaps.extend(scratch(step.begin, step.end, rule) for step in steps if step.scratch)
    runs: list[Range] = []
    position = 0
    for begin, end in gaps:
        if begin < end:
            if begin > position:
                runs.append((position, min(begin, last)))
            position = max(position, end)
    if position < last:
        runs.append((position, last))
    return runs


def scratch_need(steps: Sequence[OpenStep], rule: Rule) -> int:
    """Scratch slots of a sequence: open steps run in order and share them, so the need is their maximum."""
    if not rule.scratch_per_slot:
        return 0
    return max((scratch_slots(scratch(s.begin, s.end, rule), rule) for s in steps if s.scratch), default=0)


def subtract(runs: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Blocks in ``runs`` and not in ``others``; both sorted and disjoint."""
    if not others:
        return list(runs)
    result: list[Range] = []
    for begin, end in runs:
        for other_begin, other_end in others:
            if other_end <= begin:
                continue
            if other_begin >= end:
                break
            if other_begin > begin:
                result.append((begin, other_begin))
            begin = other_end
            if begin >= end:
                break
        if begin < end:
            result.append((begin, end))
    return result


def window_peak(
    window: int, block_tokens: int, unsettled: int = 1, max_rewind_len: int = 0, sink_blocks: int = 0
) -> int:
    """Most pages one sequence of a windowed group owns with ``unsettled`` unsettled plus planned tokens, any position.

    ``ceil((W + R + q - 2)/B) + 1`` plus the sink blocks: a run of n positions touches at most ceil((n-1)/B) + 1 blocks.
    """
    return ceil_div(max(window + max_rewind_len + unsettled - 2, 0), block_tokens) + 1 + sink_blocks
