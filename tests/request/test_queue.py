import pytest

from tidegate.base import ConfigError, QueueFull
from tidegate.request import WaitingQueue


def test_first_come_first_served_with_equal_priority() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    for order, name in enumerate("abc"):
        queue.push(name, (0, order), name.upper())

    assert list(queue) == ["A", "B", "C"]


def test_low_priority_number_goes_first_then_arrival() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    for order, (name, priority) in enumerate([("a", 5), ("b", 0), ("c", 5), ("d", 0)]):
        queue.push(name, (priority, order), name)

    assert list(queue) == ["b", "d", "a", "c"]


def test_one_put_back_takes_its_old_place() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    for order, name in enumerate("abc"):
        queue.push(name, (0, order), name)

    assert queue.pop("b") == "b"
    assert "b" not in queue
    queue.push("b", (0, 1), "b again")

    assert list(queue) == ["a", "b again", "c"]


def test_popping_what_is_not_there_changes_nothing() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    queue.push("a", (0, 0), "a")

    assert queue.pop("b") is None
    assert len(queue) == 1


def test_full_queue_refuses_submissions_but_takes_suspended_back() -> None:
    queue: WaitingQueue[str] = WaitingQueue(limit=1)
    queue.check_room()
    queue.push("a", (0, 1), "a")

    with pytest.raises(QueueFull, match="max_waiting=1"):
        queue.check_room()
    queue.push("b", (0, 0), "b")

    assert list(queue) == ["b", "a"]


def test_same_id_twice_is_refused() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    queue.push("a", (0, 0), "a")

    with pytest.raises(ConfigError, match="already waiting"):
        queue.push("a", (0, 1), "a")


def test_tokens_of_waiting_requests_are_summed_at_every_change() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    queue.push("a", (0, 0), "a", 10)
    queue.push("b", (0, 1), "b", 5)
    assert queue.num_tokens == 15

    queue.update("a", 0, 4)
    assert queue.num_tokens == 9
    queue.pop("a")
    assert queue.num_tokens == 5


def test_update_moves_an_item_by_its_new_rank() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    for order, (name, rank) in enumerate([("a", 3), ("b", 5), ("c", 9)]):
        queue.push(name, (rank, order), name)

    queue.update("c", 1, 0)
    queue.update("gone", 0, 7)

    assert list(queue) == ["c", "a", "b"]
    assert list(queue.by_arrival()) == ["a", "b", "c"]
    assert queue.pop("c") == "c"
    assert list(queue.by_arrival()) == ["a", "b"]
