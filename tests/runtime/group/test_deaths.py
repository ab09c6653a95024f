"""A rank that dies is named by all others, which are gone in time; whatever they were doing."""

import signal
from pathlib import Path

import pytest

from tests.runtime.group.ranks import run_program
from tidegate.runtime.group import EXIT_RANK_DIED


@pytest.mark.parametrize(
    ("action", "victims"),
    [("die", "1"), ("die", "0"), ("die", "12"), ("die_while_idle", "2"), ("die_while_idle", "0")],
)
def test_survivors_name_the_killed_ranks(action: str, victims: str, tmp_path: Path) -> None:
    num_ranks = 4

    ended = run_program(tmp_path, num_ranks, action, victims)

    dead = {int(victim) for victim in victims}
    assert {rank for rank, end in enumerate(ended) if end.code == -signal.SIGKILL} == dead
    for rank in set(range(num_ranks)) - dead:
        assert ended[rank].code == EXIT_RANK_DIED
        assert "died: the process is gone" in ended[rank].err
        assert str(tuple(sorted(dead))) in ended[rank].err


def test_rank_0_that_hosts_the_store_is_named(tmp_path: Path) -> None:
    _, *survivors = run_program(tmp_path, 3, "die", "0", is_hosted_by_rank_0=True)

    assert [end.code for end in survivors] == [EXIT_RANK_DIED] * 2
    assert all("rank 0" in end.err and "(0,)" in end.err for end in survivors)


def test_stopped_rank_is_named_by_its_silence(tmp_path: Path) -> None:
    first, frozen, last = run_program(tmp_path, 3, "freeze", "1", never_ends=1)

    assert (first.code, frozen.code, last.code) == (EXIT_RANK_DIED, None, EXIT_RANK_DIED)
    assert "rank 1 died: no sign of life for 1.5 s (1,)" in first.err
    assert "rank 1 died: no sign of life for 1.5 s (1,)" in last.err


def test_rank_that_does_not_ask_is_ended(tmp_path: Path) -> None:
    first, _, last = run_program(tmp_path, 3, "compute", "1")

    assert (first.code, last.code) == (EXIT_RANK_DIED, EXIT_RANK_DIED)
    assert first.err == last.err == "tidegate: rank 1 died: the process is gone\n"


def test_rank_that_leaves_while_others_go_on_is_named(tmp_path: Path) -> None:
    first, leaver, last = run_program(tmp_path, 3, "leave_early", "1")

    assert (first.code, leaver.code, last.code) == (EXIT_RANK_DIED, 0, EXIT_RANK_DIED)
    assert "rank 1 left before a collective that others wait in (1,)" in first.err
    assert "rank 1 left before a collective that others wait in (1,)" in last.err


def test_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    first, absent, last = run_program(tmp_path, 3, "never_join", "1")

    assert (first.code, absent.code, last.code) == (EXIT_RANK_DIED, 0, EXIT_RANK_DIED)
    assert "rank 1 did not arrive within 1 s" in first.err
    assert "rank 1 did not arrive within 1 s" in last.err
