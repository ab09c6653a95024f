"""O12: runners of an oversubscribed pool were paused and computed again and again, at a loss of 40 % throughput."""

from itertools import pairwise

import pytest

from benchmarks.overload import oversubscribed


@pytest.mark.parametrize("headroom_blocks", [0, 2])
def test_little_is_computed_twice_and_no_more_steps_are_taken_than_by_reserving_all(headroom_blocks: int) -> None:
    reserving = oversubscribed(capacity_policy="guaranteed_no_evict")
    run = oversubscribed(headroom_blocks=headroom_blocks)

    counts = run.scheduler.statistics()
    assert all(output.num_tokens == 128 for output in run.outputs.values())
    assert counts.recomputed_tokens <= 2458
    assert len(run.plans) <= len(reserving.plans)
    assert reserving.scheduler.statistics().suspended == 0
    assert reserving.scheduler.statistics().recomputed_tokens == 0


def test_headroom_saves_suspensions() -> None:
    with_headroom, without = oversubscribed(), oversubscribed(headroom_blocks=0)

    assert 0 < with_headroom.scheduler.statistics().suspended < without.scheduler.statistics().suspended


def test_nobody_is_suspended_before_a_token_since_it_came_back() -> None:
    run = oversubscribed(headroom_blocks=0)
    admissions: dict[str, list[int]] = {}
    victims = 0
    for number, plan in enumerate(run.plans):
        for entry in plan.admissions:
            admissions.setdefault(entry.waiting.request.request_id, []).append(number)
        victims += len(plan.victims)

    counts = run.scheduler.statistics()
    assert counts.suspended == counts.resumed == victims > 0
    assert sum(map(len, admissions.values())) == 32 + victims
    lives = [later - earlier for steps in admissions.values() for earlier, later in pairwise(steps)]
    assert min(lives) > 1  # the step that admits brings a token at the earliest, only a later one may suspend
