"""The rules of who is dead."""

from collections.abc import Sequence

import pytest

from tidegate.base import ConfigError
from tidegate.runtime.group.verdict import BeatWatch, LeaverWatch, LivenessConfig, Verdict, beat, last_beat


def beats(*values: str) -> list[bytes]:
    return [value.encode() for value in values]


def verdicts(watch: BeatWatch, looks: Sequence[list[bytes]]) -> list[tuple[int, ...]]:
    return [watch.look(look) for look in looks]


def test_rank_is_dead_once_its_beat_stood_still_for_so_many_looks() -> None:
    watch = BeatWatch(rank=0, size=3, silent_rounds=2)

    found = verdicts(watch, [beats(beat(0), beat(n), beat(7)) for n in range(4)])

    assert found == [(), (), (2,), (2,)]


def test_one_late_beat_is_no_death() -> None:
    watch = BeatWatch(rank=0, size=2, silent_rounds=2)

    found = verdicts(watch, [beats("0", value) for value in ("1", "1", "2", "2", "3")])

    assert found == [()] * 5


def test_observer_never_blames_itself_nor_who_left() -> None:
    watch = BeatWatch(rank=0, size=2, silent_rounds=1)

    assert verdicts(watch, [beats("5", last_beat(9))] * 4) == [()] * 4


def test_leaver_is_missed_in_a_collective_that_it_never_entered() -> None:
    looks = [beats("5", last_beat(9), "5")] * 3

    watch = LeaverWatch()
    assert [watch.look(look, 10) for look in looks] == [(), (), (1,)]


@pytest.mark.parametrize("call", [0, 9])
def test_leaver_is_not_missed_by_who_waits_for_nobody_or_in_a_collective_it_completed(call: int) -> None:
    watch = LeaverWatch()

    assert [watch.look(beats("5", last_beat(9)), call) for _ in range(5)] == [()] * 5


def test_verdict_keeps_its_facts_through_the_store() -> None:
    verdict = Verdict((1, 3), "ranks 1, 3 died: the process is gone", found_by=2)

    assert Verdict.from_text(verdict.to_text().encode()) == verdict
    error = verdict.error()
    assert (str(error), error.evidence) == (verdict.why, {"ranks": (1, 3), "found_by": 2})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"beat_s": 0.0}, "beat_s"), ({"silent_s": 0.9}, "silent_s"), ({"grace_s": float("nan")}, "grace_s")],
)
def test_impossible_times_are_refused(arguments: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        LivenessConfig(**arguments)
