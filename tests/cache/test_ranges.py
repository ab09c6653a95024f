"""Range functions against the per-token oracle, over every small case or random ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.cache.ranges import OpenStep, Rule, live, scratch, scratch_need, stale, subtract, window_peak
from tidegate.testing.cache_model import (
    GroupRule,
    ModelSequence,
    blocks_below,
    is_stale,
    live_blocks,
    positions_of,
    scratch_blocks,
)
from tidegate.testing.strategies import window_rules


def rule_for(group: GroupRule, max_rewind_len: int = 0) -> Rule:
    sink_blocks = len({position // group.block_tokens for position in range(group.sink_tokens)})
    return Rule(group.block_tokens, group.window, sink_blocks, 1 if group.uses_scratch else 0, max_rewind_len)


def blocks(run: tuple[int, int]) -> set[int]:
    return set(range(*run))


@given(window_rules(), st.integers(0, 120))
def test_stale_is_what_no_later_query_reads(group: GroupRule, history: int) -> None:
    found = blocks(stale(history, rule_for(group)))

    assert found == {block for block in blocks_below(history + 1, group) if is_stale(block, history, group)}


@given(st.integers(0, 200), st.integers(1, 8))
def test_full_attention_has_no_stale_block(history: int, block_tokens: int) -> None:
    begin, end = stale(history, Rule(block_tokens, None, 0, 0, 0))

    assert begin == end


@given(window_rules(), st.integers(0, 60), st.integers(0, 60), st.integers(0, 8))
def test_scratch_is_what_one_step_writes_and_reads_last(
    group: GroupRule, previous: int, length: int, rewind: int
) -> None:
    found = blocks(scratch(previous, previous + length, rule_for(group, rewind)))

    assert found == scratch_blocks(previous, previous + length, group, rewind)


@st.composite
def cursors(draw: st.DrawFn) -> list[int]:
    ends = [draw(st.integers(0, 60))]
    for _ in range(draw(st.integers(0, 3))):
        ends.append(ends[-1] + draw(st.sampled_from((0, 1, 1, 2, 5, 13, 40))))
    return ends


@settings(max_examples=400)
@given(window_rules(), cursors(), st.integers(0, 60), st.integers(0, 8))
def test_live_is_what_may_still_be_read_less_scratch(
    group: GroupRule, ends: list[int], below: int, rewind: int
) -> None:
    settled = max(0, ends[0] - below)
    spans = tuple(pairwise(ends))
    runs = live(settled, ends[-1], [OpenStep(*span) for span in spans], rule_for(group, rewind))

    assert set().union(*map(blocks, runs)) == live_blocks(settled, ends[-1], spans, group, rewind)
    assert runs == sorted(runs) and all(begin < end for begin, end in runs)


@given(window_rules(), cursors(), st.integers(0, 8))
def test_without_scratch_every_block_of_an_open_step_owns_a_page(
    group: GroupRule, ends: list[int], rewind: int
) -> None:
    steps = [OpenStep(*span, scratch=False) for span in pairwise(ends)]
    runs = live(ends[0], ends[-1], steps, rule_for(group, rewind))

    written = blocks_below(ends[-1], group) - blocks_below(ends[0], group)
    assert written <= set().union(set(), *map(blocks, runs))


@given(window_rules(), cursors(), st.integers(0, 8), st.integers(1, 5))
def test_scratch_need_is_the_largest_of_the_open_steps(
    group: GroupRule, ends: list[int], rewind: int, per_slot: int
) -> None:
    rule = rule_for(group, rewind)._replace(scratch_per_slot=per_slot)
    sizes = [len(scratch_blocks(*span, group, rewind)) for span in pairwise(ends)]

    need = scratch_need([OpenStep(*span) for span in pairwise(ends)], rule)
    assert need == max((-(-size // per_slot) for size in sizes), default=0)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_subtract_is_set_difference(ours: set[int], others: set[int]) -> None:
    assert set().union(set(), *map(blocks, subtract(runs_of(ours), runs_of(others)))) == ours - others


def runs_of(members: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for member in sorted(members):
        if runs and runs[-1][1] == member:
            runs[-1] = (runs[-1][0], member + 1)
        else:
            runs.append((member, member + 1))
    return runs


@pytest.mark.parametrize("block_tokens", [1, 2, 4, 8])
@pytest.mark.parametrize("window", [1, 2, 4, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("rewind", [0, 1, 3])
@pytest.mark.parametrize("unsettled", [1, 2, 5])
def test_window_peak_is_the_most_any_position_needs(
    block_tokens: int, window: int, rewind: int, unsettled: int
) -> None:
    group = GroupRule(block_tokens, window)
    counts = [
        len(live_blocks(settled, settled + rewind + unsettled, (), group, rewind))
        for settled in range(3 * window + 2 * block_tokens)
    ]

    assert window_peak(window, block_tokens, unsettled, rewind) == max(counts)


@settings(max_examples=300)
@given(window_rules(), st.integers(0, 6), st.data())
def test_no_query_reads_a_lost_position_and_no_settle_needs_a_page(
    group: GroupRule, rewind: int, data: st.DataObject
) -> None:
    sequence = ModelSequence([], 0, 0, rewind)
    held: dict[int, set[int]] = {}
    for _ in range(12):
        if data.draw(st.booleans()) and len(sequence.steps) < 3:
            sequence.open(sequence.capacity + data.draw(st.sampled_from((1, 1, 2, 5, 13, 40))))
            _follow(held, sequence, group, may_acquire=True)
        elif sequence.steps:
            _compute(held, sequence, group, rewind)
            end = sequence.steps[0][1]
            options = [h for h in range(sequence.history, end + 1) if sequence.can_settle(h, [group])]
            if len(sequence.steps) > 1:
                options = [h for h in options if h == end]
            sequence.settle(data.draw(st.sampled_from(options)))
            _follow(held, sequence, group, may_acquire=False)


def _compute(held: dict[int, set[int]], sequence: ModelSequence, group: GroupRule, rewind: int) -> None:
    begin, end = sequence.steps[0]
    passing = scratch_blocks(begin, end, group, rewind)
    for position in range(begin, end):
        block = position // group.block_tokens
        if block not in passing:
            held[block].add(position)
    oldest = max(0, begin - (group.window or begin) + 1)
    for position in {*range(oldest, end), *range(min(group.sink_tokens, end))}:
        block = position // group.block_tokens
        assert block in passing or position in held[block], f"position {position} is lost"


def _follow(held: dict[int, set[int]], sequence: ModelSequence, group: GroupRule, *, may_acquire: bool) -> None:
    owned = sequence.owned(group)
    for block in set(held) - owned:
        del held[block]
    for block in owned - set(held):
        assert may_acquire or positions_of(block, group)[0] >= sequence.history
        held[block] = set()
    for block in held:
        held[block] = {position for position in held[block] if position < sequence.history}
