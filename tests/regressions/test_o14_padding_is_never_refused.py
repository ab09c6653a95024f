"""A rank without a free page takes part in every step: the padding entry has its pages since the start."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.cache import KVCacheManager
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import make_request


def four_ranks(num_tokens: int) -> GroupRun:
    run = GroupRun(
        4,
        stacked(full(), window(8)),
        pool_slots=(26,),
        tokens_per_block=8,
        max_seq_len=128,
        max_batch_size=4,
        max_num_tokens=64,
        headroom_blocks=0,
    )
    for rank in (0, 1, 3):
        for i in range(2):
            name = f"r{rank}-{i}"
            run.submit(make_request(name, 9, max_tokens=num_tokens, attention_dp_rank=rank, attention_dp_relax=False))
    run.step_until(lambda: all(run.group.ranks[i].load().active == 2 for i in (0, 1, 3)))
    return run


@contextmanager
def held_by_a_transfer(manager: KVCacheManager) -> Iterator[None]:
    """Hold every free page, as somebody does who receives pages from elsewhere."""
    reservations = []
    while (quote := manager.quote()).admit(manager.candidate([1], access="none"), 1):
        reservations.append(manager.reserve(quote))
    try:
        yield
    finally:
        for reservation in reversed(reservations):
            reservation.rollback()


def test_no_step_is_lost_while_a_rank_has_no_page_and_nothing_to_run() -> None:
    run = four_ranks(num_tokens=20)
    idle = run.group.ranks[2]
    free = idle.manager.quote().supply

    with held_by_a_transfer(idle.manager):
        for _ in range(5):
            run.step()
            assert run.group.last is not None
            assert run.group.last.is_run
            assert run.group.last.tokens == (2, 2, 0, 2)

    assert idle.num_padding_steps >= 5
    assert idle.manager.quote().supply == free
    assert idle.session.statistics().submitted == 0
    assert len(run.run()) == 6


def test_ranks_refused_in_alternation_leak_nothing() -> None:
    run = four_ranks(num_tokens=40)
    run.run()
    free = [rank.manager.quote().supply for rank in run.group.ranks]
    run.submit(make_request("long", 5, max_tokens=110, attention_dp_rank=0, attention_dp_relax=False))

    for i in range(100):
        with held_by_a_transfer(run.group.ranks[1 + i % 2].manager):
            run.step()

    run.run()
    assert [rank.manager.quote().supply for rank in run.group.ranks] == free
