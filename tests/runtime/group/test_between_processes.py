"""What ranks hear from each other over torch.distributed, and that a good end is no death."""

import hashlib
from pathlib import Path

import pytest

from tests.runtime.group.ranks import Ended, run_program
from tests.runtime.group.transcript import hear
from tidegate.runtime.group import LocalExchange

SEED = 3


def heard_locally(num_ranks: int) -> str:
    digest = hashlib.sha256()
    for kind, heard in hear(LocalExchange(num_ranks), SEED):
        if kind != "collect":
            digest.update(kind.encode() + heard)
    return digest.hexdigest()


@pytest.mark.parametrize("num_ranks", [1, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_all_ranks_hear_what_ranks_of_one_process_hear(num_ranks: int, tmp_path: Path) -> None:
    ended = run_program(tmp_path, num_ranks, "talk", str(SEED))

    assert ended == [Ended(0, f"heard {heard_locally(num_ranks)}\n", "")] * num_ranks


def test_sleep_ends_at_its_time_or_by_rank_0_and_a_slow_rank_is_not_dead(tmp_path: Path) -> None:
    ended = run_program(tmp_path, 3, "rest", "")

    # timed out; woken; woken before it began; woken by a rank 0 that does not sleep; that remembered; timed out
    others = Ended(0, "rested [False, True, True, True, True, False]\n", "")
    assert ended == [Ended(0, "rested [False, True, True, True, False]\n", ""), others, others]


def test_rank_0_may_host_the_store_and_leave_first(tmp_path: Path) -> None:
    ended = run_program(tmp_path, 2, "leave_in_turn", "", is_hosted_by_rank_0=True)

    assert ended == [Ended(0, "", "")] * 2
