"""The checks are worth what they catch: each bug below is planted by patching one function of the cache.

===========================  ==========================================================  ===================
planted bug                  what it does                                                 caught by, mostly
===========================  ==========================================================  ===================
release skipped              the first of several unlocked pages keeps its lock           audit
lock too few                 a matched page is taken without a lock                       audit, fingerprints
two rows, one slot           the table shows a neighbour's slot                           tables, fingerprints
scratch index wrong          two scratch blocks of a layer share a place                  fingerprints
scratch in a live slot       scratch blocks lie in slots of live pages                   fingerprints
settle before publish        windows expire before a checkpoint can keep them             reuse model
copy left out                a shared last page is written in place                       fingerprints
copy source let go           a shared page loses its lock before it is copied             audit, fingerprints
stale quote accepted         a quote outlives the state it was made for                   rules
window off by one            a block goes stale one position too early                    tables, fingerprints
sinks dropped                sink blocks go stale like any other                          tables, fingerprints
wrong adopted page           a row keeps its own page and lets the shared one's lock go   audit
roll-back forgets a page     undone growth returns all new pages but one                  audit
checkpoint page freed        a checkpoint does not count as an owner                      audit, fingerprints
snapshot too late            a state is copied only after the next step                   fingerprints
match one token too long     two texts seem to share one token more                       reuse, fingerprints
scopes confused              every look-up sees the plain scope's tree                    reuse, fingerprints
forgetting forgets nothing   invalidated content stays reusable                           rules
rewind keeps what it took    the tree keeps an open leaf over rewritten blocks            audit, fingerprints
eviction takes a live page   locked pages count as evictable                              audit, fingerprints
settled cursor runs ahead    no slack is kept for rejected drafts                         rules, tables
===========================  ==========================================================  ===================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tidegate.cache.core
import tidegate.cache.ranges
import tidegate.cache.tree_reader
from tidegate.base import TidegateError
from tidegate.cache import KVCacheConfig, KVCacheManager, PageCopies, Quote, ReuseScope
from tidegate.cache.advance import Settler
from tidegate.cache.moves import Mover
from tidegate.cache.nodes import TOKEN_BYTES
from tidegate.cache.pages import PagePool
from tidegate.cache.publishing import Publisher
from tidegate.cache.radix_tree import RadixTree
from tidegate.cache.reservation import Reservation
from tidegate.cache.reuse import ReuseControl
from tidegate.cache.settle_rules import SettleRules
from tidegate.cache.step_changes import StepChanges
from tidegate.cache.tables import GroupRows
from tidegate.testing.cache_rules import take_steps
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.choices import seeded
from tidegate.testing.greedy import drive, run_step
from tidegate.testing.layouts import stacked, window

LIVES = 300
STEPS = 150
Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, Plant] = {}


def planted(plant: Plant) -> Plant:
    """Register a bug under its function's name."""
    BUGS[plant.__name__] = plant
    return plant


@planted
def release_skipped(patch: pytest.MonkeyPatch) -> None:
    unlock = PagePool.unlock
    patch.setattr(PagePool, "unlock", lambda pool, pages, kept=0: unlock(pool, pages[len(pages) > 1 :], kept))


@planted
def lock_too_few(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepChanges, "_lock_match", lambda self, move: None)


@planted
def two_rows_one_slot(patch: pytest.MonkeyPatch) -> None:
    put_run = GroupRows.put_run

    def wrong(rows, row, run, pages):  # type: ignore[no-untyped-def]  # stands in for a typed one
        put_run(rows, row, run, pages)
        if len(pages) > 1:
            rows.slots[row, run[0]] = rows.slots[row, run[0] + 1]

    patch.setattr(GroupRows, "put_run", wrong)


@planted
def scratch_index_wrong(patch: pytest.MonkeyPatch) -> None:
    per_layer = tidegate.cache.core.per_layer  # type: ignore[attr-defined]  # patched where it is used

    def wrong(rows, buffers, step, ranges):  # type: ignore[no-untyped-def]  # stands in for a typed one
        table = per_layer(rows, buffers, step, ranges)
        for place, (begin, end) in ranges:
            table[:, place, end - 1] = table[:, place, begin]
        return table

    patch.setattr(tidegate.cache.core, "per_layer", wrong)


@planted
def scratch_in_a_live_slot(patch: pytest.MonkeyPatch) -> None:
    slots = GroupRows.scratch_slots

    def wrong(rows, row):  # type: ignore[no-untyped-def]  # stands in for a typed one
        held = slots(rows, row)
        live = rows.slots[row][rows.slots[row] >= 0]
        return np.resize(live, held.shape) if len(live) else held

    patch.setattr(GroupRows, "scratch_slots", wrong)


@planted
def copy_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mover, "_private_writes", lambda self, move: None)


@planted
def copy_source_let_go(patch: pytest.MonkeyPatch) -> None:
    private_copy = StepChanges._private_copy

    def wrong(self, undo, group, block):  # type: ignore[no-untyped-def]  # stands in for a typed one
        page = self._host.rows[group].pages[undo.move.row, block : block + 1].copy()
        private_copy(self, undo, group, block)
        self._host.rows[group].pool.unlock(page)

    patch.setattr(StepChanges, "_private_copy", wrong)


@planted
def stale_quote_accepted(patch: pytest.MonkeyPatch) -> None:
    reserve = KVCacheManager.reserve

    def wrong(manager: KVCacheManager, quote: Quote) -> Reservation:
        quote.version = manager.quote().version
        return reserve(manager, quote)

    patch.setattr(KVCacheManager, "reserve", wrong)


@planted
def window_off_by_one(patch: pytest.MonkeyPatch) -> None:
    stale = tidegate.cache.ranges.stale
    patch.setattr(tidegate.cache.ranges, "stale", lambda history, rule: stale(history + 1, rule))


@planted
def sinks_dropped(patch: pytest.MonkeyPatch) -> None:
    stale = tidegate.cache.ranges.stale
    patch.setattr(tidegate.cache.ranges, "stale", lambda history, rule: stale(history, rule._replace(sink_blocks=0)))


@planted
def wrong_adopted_page(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupRows, "swap_run", lambda rows, row, first, pages: None)


@planted
def roll_back_forgets_a_page(patch: pytest.MonkeyPatch) -> None:
    give = StepChanges._give

    def wrong(self, group, pages, *, dispatched):  # type: ignore[no-untyped-def]  # stands in for a typed one
        give(self, group, pages[1:], dispatched=dispatched)

    patch.setattr(StepChanges, "_give", wrong)


@planted
def checkpoint_page_freed(patch: pytest.MonkeyPatch) -> None:
    def wrong(pool, pages, refs, owners, ordinals):  # type: ignore[no-untyped-def]  # stands in for a typed one
        pool.owner[pages] = owners
        pool.ordinal[pages] = ordinals

    patch.setattr(PagePool, "cache", wrong)


@planted
def snapshot_too_late(patch: pytest.MonkeyPatch) -> None:
    dispatch = Reservation.dispatch
    late: list[tuple[PageCopies, ...]] = []

    def wrong(self):  # type: ignore[no-untyped-def]  # stands in for a typed one
        pages = dispatch(self)
        late.append(pages.snapshots)
        return pages._replace(snapshots=late[-2] if len(late) > 1 else ())

    patch.setattr(Reservation, "dispatch", wrong)


@planted
def match_one_token_too_long(patch: pytest.MonkeyPatch) -> None:
    common = tidegate.cache.tree_reader.common_tokens  # type: ignore[attr-defined]  # patched where it is used

    def wrong(cached: bytes, asked: bytes | memoryview) -> int:
        return min(common(cached, asked) + 1, len(cached) // TOKEN_BYTES, len(asked) // TOKEN_BYTES)

    patch.setattr(tidegate.cache.tree_reader, "common_tokens", wrong)


@planted
def scopes_confused(patch: pytest.MonkeyPatch) -> None:
    find = RadixTree.find
    patch.setattr(RadixTree, "find", lambda tree, scope: find(tree, ReuseScope()))


@planted
def forgetting_forgets_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReuseControl, "invalidate", lambda self, scope: None)


@planted
def rewind_keeps_what_it_took(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "reattach", lambda self, row: None)


@planted
def eviction_takes_a_live_page(patch: pytest.MonkeyPatch) -> None:
    def wrong(pool, pages, stamps):  # type: ignore[no-untyped-def]  # stands in for a typed one
        return (pool.refs[pages] > 0) & (pool.slot[pages] >= 0)

    patch.setattr(PagePool, "_valid", wrong)


@planted
def settled_cursor_runs_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SettleRules, "settled_at", lambda self, row, history: history)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)

    for seed in range(LIVES):
        try:
            take_steps(CacheWalk(seeded(seed)), STEPS)
        except (TidegateError, AssertionError, IndexError, ValueError, KeyError, TypeError, StopIteration) as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            return
    pytest.fail(f"{name} survived {LIVES} lives of {STEPS} events")


def test_settling_before_publishing_is_caught_by_what_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    def reused_after_two_chunks() -> int:
        driver = drive(
            KVCacheConfig(
                layers=stacked(window(8)), max_sequences=2, max_seq_len=64, pool_slots=(32,), tokens_per_block=4
            )
        )
        prompt = [token % 5 for token in range(33)]
        step = run_step(driver, admit=[(driver.manager.candidate(prompt), 14)])
        assert step is not None
        assert run_step(driver, grow=[(step.sequences[0].row, 19)])
        return driver.manager.probe(prompt[:17]).reused

    assert reused_after_two_chunks() == 16
    apply, checkpoint = Settler.move_to, Publisher.checkpoint_chunk
    late: list[tuple[object, ...]] = []
    monkeypatch.setattr(Publisher, "checkpoint_chunk", lambda *call: late.append(call))

    def settle_first(self, move):  # type: ignore[no-untyped-def]  # stands in for a typed one
        apply(self, move)
        while late:
            checkpoint(*late.pop())  # type: ignore[arg-type]  # the arguments it was called with

    monkeypatch.setattr(Settler, "move_to", settle_first)
    assert reused_after_two_chunks() < 16
