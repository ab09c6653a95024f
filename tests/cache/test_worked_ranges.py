"""Every number of the contract's section on ranges."""

from __future__ import annotations

import pytest

from tidegate.cache.ranges import (
    OpenStep,
    Rule,
    ceil_div,
    live,
    scratch,
    scratch_need,
    scratch_slots,
    stale,
    window_peak,
)


def count(runs: list[tuple[int, int]]) -> int:
    """Blocks in disjoint runs."""
    return sum(end - begin for begin, end in runs)


def rule(block_tokens: int, window: int, *, sinks: int = 0, per_slot: int = 1, rewind: int = 0) -> Rule:
    return Rule(block_tokens, window, ceil_div(sinks, block_tokens), per_slot, rewind)


@pytest.mark.parametrize(
    ("window", "sinks", "rewind", "step", "expected"),
    [
        (128, 0, 0, (0, 1024), (0, 28)),
        (32, 0, 0, (0, 256), (0, 7)),
        (32, 0, 64, (0, 256), (0, 5)),
        (64, 0, 0, (0, 256), (0, 6)),
        (64, 0, 0, (256, 352), (8, 9)),
        (64, 0, 32, (0, 256), (0, 5)),
        (64, 0, 32, (256, 352), (0, 0)),
        (128, 32, 0, (0, 512), (1, 12)),
    ],
)
def test_scratch_of_one_step(
    window: int, sinks: int, rewind: int, step: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert scratch(*step, rule(32, window, sinks=sinks, rewind=rewind)) == expected


def test_stale_blocks_of_a_window_of_two_blocks() -> None:
    assert stale(127, rule(32, 64)) == (0, 2)


def test_a_window_one_longer_than_its_blocks_peaks_at_six() -> None:
    assert window_peak(129, 32, unsettled=2) == 6


def test_a_plain_decoder_peaks_at_its_window_and_one_block() -> None:
    assert window_peak(128, 32) == 5
    assert window_peak(4, 8) == 2
    assert window_peak(1, 8) == 1


def test_a_prefill_of_32_layers_takes_5_slots_where_plain_allocation_takes_32() -> None:
    coalesced = rule(32, 128, per_slot=32)
    passing = scratch(0, 1024, coalesced)

    assert scratch_slots(passing, coalesced) == 1
    step = OpenStep(0, 1024)
    assert live(0, 1024, [step], coalesced) == [(28, 32)]
    assert count(live(0, 1024, [step], coalesced)) + scratch_need([step], coalesced) == 5
    assert count(live(0, 1024, [step._replace(scratch=False)], coalesced)) == 32


def test_need_is_not_monotone_in_capacity() -> None:
    coalesced = rule(32, 128, per_slot=32)

    def need(end: int) -> int:
        step = OpenStep(0, end)
        return count(live(0, end, [step], coalesced)) + scratch_need([step], coalesced)

    assert (need(1024), need(1022)) == (5, 6)


def test_blocks_that_the_next_chunk_reads_stay_while_the_first_is_in_flight() -> None:
    chunked = rule(32, 128)

    runs = live(0, 2048, [OpenStep(0, 1024), OpenStep(1024, 2048)], chunked)

    kept = {block for begin, end in runs for block in range(begin, end)}
    assert {28, 29, 30, 31} <= kept
    assert kept.isdisjoint(range(28))
