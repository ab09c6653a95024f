"""Which rows get drafts, what a plan does with them, and which of them are kept."""

from typing import Any

import numpy as np

from tests.scheduling.test_ngram_drafts import enter
from tidegate.base import Int32Array, Int64Array
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.request import RunningSequences
from tidegate.scheduling import Drafts, ModelLimits, Plan, Scheduler, SchedulerConfig, Step, accept_drafts
from tidegate.scheduling.balance import Decision
from tidegate.scheduling.drafting import Drafter
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import make_request


class Constant:
    """Always guesses the same token, as often as it may."""

    num_draft_tokens = 4

    def __init__(self, token: int = 1) -> None:
        self.token = token
        self.asked: list[tuple[list[int], list[int]]] = []

    def propose(
        self, rows: Int64Array, sequences: RunningSequences, limits: Int64Array
    ) -> tuple[Int32Array, Int64Array]:
        self.asked.append((rows.tolist(), limits.tolist()))
        tokens = np.full((len(rows), 4), self.token, dtype=np.int32)
        tokens[np.arange(4) >= limits[:, None]] = -1
        return tokens, limits.copy()


class Run:
    """A scheduler with drafts over a cache without memory; the engine always answers 1."""

    def __init__(self, pages: int, token: int = 1, **config: int) -> None:
        cache = KVCacheConfig(
            layers=stacked(full()),
            max_sequences=8,
            max_seq_len=200,
            tokens_per_block=4,
            pool_slots=(pages,),
            max_open_steps=1,
            max_rewind_len=4,
        )
        self.manager = KVCacheManager(cache, with_memory=False)
        values: dict[str, Any] = {"max_num_tokens": 64, "max_batch_size": 8, "headroom_blocks": 0, **config}
        self.source = Constant(token)
        self.scheduler = Scheduler(self.manager, SchedulerConfig(**values), ModelLimits(50), self.source)

    def step(self, plan: Plan | None = None) -> Plan:
        plan = self.scheduler.plan() if plan is None else plan
        with self.manager.reserve(plan.quote) as reservation:
            reservation.dispatch()
            step = self.scheduler.start(plan, reservation, now=0.0)
            reservation.keep()
        tokens = np.where(step.samples, 1, -1)
        if step.drafts is not None:
            drawn = np.ones((len(step.rows), 1 + step.drafts.tokens.shape[1]), dtype=np.int64)
            tokens = accept_drafts(step, drawn, self.scheduler.sequences)
        self.scheduler.apply(step, tokens, now=0.0)
        self.manager.audit()
        return plan


def drafter_of(max_open_steps: int = 1, *prompts: list[int]) -> tuple[Drafter, RunningSequences, Constant]:
    config = KVCacheConfig(
        layers=stacked(full()),
        max_sequences=4,
        max_seq_len=200,
        pool_slots=(9,),
        max_open_steps=max_open_steps,
        max_rewind_len=4,
    )
    sequences, source = RunningSequences(4, 200), Constant()
    drafter = Drafter(source, KVCacheManager(config, with_memory=False), sequences, 50)
    for row, prompt in enumerate(prompts):
        enter(sequences, row, prompt)
        drafter.enter(row, sequences.request(row))
    return drafter, sequences, source


def drafts(tokens: list[list[int]]) -> Drafts:
    array = np.array(tokens, dtype=np.int32)
    return Drafts(array, (array >= 0).sum(axis=1), np.ones(len(array), dtype=np.bool_))


def test_drafts_are_counted_in_the_plan_and_its_quote() -> None:
    run = Run(40)
    run.scheduler.submit(make_request("a", 7, max_tokens=30), now=0.0)
    run.scheduler.submit(make_request("b", 9, max_tokens=30), now=0.0)
    run.step()

    plan = run.scheduler.plan()

    assert plan.drafts is not None
    assert plan.drafts.counts.tolist() == [3, 3]
    assert plan.num_tokens == plan.num_decode_tokens == 8
    assert plan.decode_ends(run.manager.capacity).tolist() == [7 + 4, 9 + 4]
    run.step(plan)
    assert run.manager.history[plan.decodes].tolist() == [11, 13]


def test_all_drafts_of_a_step_keep_to_what_is_left_of_its_tokens() -> None:
    run = Run(60, max_num_tokens=10)
    for name in "abcde":
        run.scheduler.submit(make_request(name, 2, max_tokens=30), now=0.0)
    run.step()

    plan = run.step()

    assert plan.drafts is not None
    assert plan.drafts.counts.tolist() == [3, 2, 0, 0, 0]
    assert plan.num_tokens == 10


def test_nobody_is_suspended_for_drafts() -> None:
    run = Run(5)
    for name in "ab":
        run.scheduler.submit(make_request(name, 7, max_tokens=12), now=0.0)
    run.step()  # 7 tokens computed: two pages each, one free

    plan = run.step()

    assert plan.victims == ()
    assert len(plan.decodes) == 2
    assert plan.drafts is not None
    assert plan.num_tokens == 2  # the eighth token fills the pages, and for drafts one page is not enough


def test_drafts_fill_the_pages_that_are_there_anyway() -> None:
    run = Run(4)
    for name in "ab":
        run.scheduler.submit(make_request(name, 5, max_tokens=12), now=0.0)
    run.step()

    plan = run.step()

    assert plan.drafts is not None
    assert plan.drafts.counts.tolist() == [2, 2]
    assert plan.victims == ()


def test_a_plan_made_smaller_keeps_its_drafts() -> None:
    run = Run(60)
    run.scheduler.submit(make_request("a", 3, max_tokens=30), now=0.0)
    run.step()
    run.scheduler.submit(make_request("b", 20, max_tokens=3), now=0.0)
    plan = run.scheduler.plan()

    smaller = run.scheduler.restrict(plan, Decision(max_tokens=9))

    assert [(a.start, a.end) for a in plan.admissions] == [(0, 20)]
    assert [(a.start, a.end) for a in smaller.admissions] == [(0, 4)]
    assert smaller.num_tokens == 4 + 4
    run.step(smaller)
    assert run.scheduler.statistics().accepted_tokens == 3


def test_what_is_not_computed_has_no_drafts_in_its_step() -> None:
    found = drafts([[1, 2], [3, -1], [4, 5]]).of_step(np.array([True, True, False, True]))

    assert found.tokens.tolist() == [[1, 2], [3, -1], [-1, -1], [-1, -1]]
    assert found.counts.tolist() == [2, 1, 0, 0]


def test_nothing_beyond_the_longest_length_is_drafted() -> None:
    drafter, sequences, source = drafter_of(1, [5] * 10, [5] * 10)
    sequences.max_length[:2] = 13, 11

    found = drafter.propose(np.array([0, 1]), np.array([10, 10]), 100)

    assert found is not None
    assert source.asked == [([0], [2])]  # two drafts and what is drawn behind them are the last three
    assert found.counts.tolist() == [2, 0]


def test_foreign_ids_end_a_draft() -> None:
    drafter, _, source = drafter_of(1, [5, 6])
    source.token = 50

    found = drafter.propose(np.array([0]), np.array([2]), 100)

    assert found is not None
    assert found.num_tokens == 0


def test_estimates_shorten_stop_and_revive_drafting() -> None:
    drafter, sequences, source = drafter_of(1, [5] * 10)
    row = np.array([0])
    wrong, right = np.array([[1, -1, -1, -1, -1]]), np.ones((1, 5), dtype=np.int64)
    lengths: list[int | None] = []
    for _ in range(60):
        known = int(sequences.num_tokens[0])
        found = drafter.propose(row, np.array([known]), 100)
        lengths.append(None if found is None else found.num_tokens)
        sequences.append(row, np.array([1]), now=0.0)
        sequences.max_length[0] = 200
        if found is not None:
            drafter.learn(row, found, wrong)

    tries = [i for i, length in enumerate(lengths) if length is not None]
    assert [lengths[i] for i in tries[:3]] == [3, 1, 1]
    assert tries[1] - tries[0] == 1 + 16
    assert tries[2] - tries[1] == 1 + 32
    for _ in range(12):
        drafter.learn(row, drafts([[1, 1, 1, 1]]), right)
    sequences.num_tokens[0] += 100
    found = drafter.propose(row, sequences.num_tokens[row], 100)
    assert found is not None
    assert found.num_tokens == 4
    assert len(source.asked) == len(tries) + 1


def test_with_overlap_rows_worth_drafting_wait_and_unmatched_ones_do_not() -> None:
    drafter, sequences, _ = drafter_of(2, [5] * 10, [5] * 10, [5] * 10)
    rows = np.arange(3)
    none = Drafts(np.zeros((3, 0), dtype=np.int32), np.zeros(3, dtype=np.int64), np.array([False, True, False]))

    assert drafter.must_settle(rows, np.array([9, 10, 13])).tolist() == [False, True, True]

    drafter.note(rows, none)
    assert drafter.must_settle(rows, np.array([10, 10, 13])).tolist() == [True, False, True]
    sequences.num_tokens[1] += 8
    assert drafter.must_settle(rows, np.array([10, 18, 13])).tolist() == [True, True, True]


def step_of(tokens: list[list[int]]) -> Step:
    n = len(tokens)
    return Step(
        rows=np.arange(n),
        starts=np.zeros(n, dtype=np.int64),
        ends=np.zeros(n, dtype=np.int64),
        samples=np.ones(n, dtype=np.bool_),
        is_computed=np.ones(n, dtype=np.bool_),
        is_whole=True,
        samples_all=True,
        num_admitted=0,
        drafts=drafts(tokens),
    )


def test_a_draft_is_kept_while_it_is_what_was_drawn() -> None:
    _, sequences, _ = drafter_of(1, [5], [5], [5], [5])
    step = step_of([[1, 2, 3], [1, 2, 3], [9, 2, 3], [1, -1, -1]])
    drawn = np.array([[1, 2, 3, 4], [1, 9, 3, 4], [1, 2, 3, 4], [1, 2, -1, -1]])

    assert accept_drafts(step, drawn, sequences).tolist() == [
        [1, 2, 3, 4],
        [1, 9, -1, -1],
        [1, -1, -1, -1],
        [1, 2, -1, -1],
    ]


def test_nothing_is_kept_behind_what_ends_a_sequence() -> None:
    _, sequences, _ = drafter_of(1, [5], [5], [5])
    sequences.stop_ids[:, 0] = 2
    sequences.min_length[1] = 4
    sequences.max_length[1] = 4
    sequences.phase[2] = 4
    step = step_of([[1, 2, 2]] * 3)
    drawn = np.array([[1, 2, 2, 2]] * 3)

    assert accept_drafts(step, drawn, sequences).tolist() == [[1, 2, -1, -1], [1, 2, 2, -1], [-1] * 4]
