"""The cache against its model, over random lives: every rule, many configurations, checked after each event.

A seeded walk takes the bulk of the steps, and a Hypothesis machine, which shrinks what it finds, a smaller share.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidegate.testing.cache_rules import RULES, Rule, take_steps
from tidegate.testing.cache_walk import CacheWalk
from tidegate.testing.choices import seeded
from tidegate.testing.strategies import choices

NUM_SHARDS = 2
STEPS_PER_SHARD = 100_000
STEPS_PER_LIFE = 400
MUST_COVER = ("scratch", "overlap", "copies", "rewound below published", "full")
LEAST = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_random_lives_agree_with_the_model(shard: int) -> None:
    counts: Counter[str] = Counter()
    seed = shard
    while counts["steps"] < STEPS_PER_SHARD:
        print(f"seed {seed}")
        walk = CacheWalk(seeded(seed))
        take_steps(walk, STEPS_PER_LIFE)
        counts += walk.counts
        seed += NUM_SHARDS

    print(dict(counts))
    assert {name: counts[name] for name in MUST_COVER if counts[name] < LEAST} == {}


class CacheMachine(RuleBasedStateMachine):
    """One life of a cache, each event one of the shared rules."""

    def __init__(self) -> None:
        super().__init__()
        self.walk: CacheWalk

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.walk = CacheWalk(choices(data.draw))


def _event(event: Rule):  # type: ignore[no-untyped-def]  # Hypothesis' own return types
    def act(self: CacheMachine, data: st.DataObject) -> None:
        self.walk.choose = choices(data.draw)
        event.act(self.walk)
        self.walk.check()

    return precondition(lambda self: event.is_enabled(self.walk))(rule(data=st.data())(act))


for _name, _rule in RULES.items():
    setattr(CacheMachine, _name, _event(_rule))

TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
