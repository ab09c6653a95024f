import numpy as np
import pytest

from tidegate.base import ConfigError, InternalError
from tidegate.workload import Content, Feed, Workload, WorkloadRequest


def asked(name: str, arrival_s: float = 0.0, after: str | None = None, think_s: float = 0.0) -> WorkloadRequest:
    text = Content(np.array([1]), np.array([0]), np.array([8]))
    return WorkloadRequest(
        request_id=name,
        prompt=text,
        num_output_tokens=4,
        output_key=2,
        arrival_s=arrival_s,
        after=after,
        think_s=think_s,
    )


def workload(*requests: WorkloadRequest, concurrency: int | None = None) -> Workload:
    return Workload(source="test", requests=requests, concurrency=concurrency)


def come(feed: Feed, now: float) -> list[tuple[str, float]]:
    return [(request.request_id, since) for request, since in feed.due(now)]


def test_requests_come_at_their_arrival_and_in_the_workloads_order() -> None:
    feed = Feed(workload(asked("a", 2.0), asked("b", 1.0), asked("c", 2.0)))
    assert (feed.next_s, come(feed, 0.5)) == (1.0, [])
    assert come(feed, 3.0) == [("b", 1.0), ("a", 2.0), ("c", 2.0)]
    assert (feed.next_s, feed.num_left, feed.is_done) == (None, 0, False)
    for name in "abc":
        feed.ended(name, 4.0)
    assert feed.is_done


def test_a_turn_waits_for_the_one_before_and_for_its_user() -> None:
    feed = Feed(workload(asked("a"), asked("b", 1.0, after="a", think_s=2.0), asked("c", 9.0, after="b")))
    assert come(feed, 5.0) == [("a", 0.0)]
    assert (feed.next_s, feed.num_left) == (None, 2)
    feed.ended("a", 5.0)
    assert (feed.next_s, come(feed, 6.9), come(feed, 8.0)) == (7.0, [], [("b", 7.0)])
    feed.ended("b", 8.0)
    assert come(feed, 9.0) == [("c", 9.0)]


def test_a_closed_load_lets_in_as_many_as_it_says() -> None:
    feed = Feed(workload(*(asked(name) for name in "abc"), concurrency=2))
    assert come(feed, 0.0) == [("a", 0.0), ("b", 0.0)]
    assert (feed.next_s, come(feed, 3.0)) == (None, [])
    feed.ended("b", 4.0)
    assert (feed.next_s, come(feed, 4.0)) == (0.0, [("c", 4.0)])


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ConfigError, match="request_id='a' comes twice"):
        workload(asked("a"), asked("a"))
    with pytest.raises(ConfigError, match="after='b' of request 'a' must name an earlier request"):
        workload(asked("a", after="b"), asked("b"))
    with pytest.raises(ConfigError, match="concurrency=0 must be >= 1"):
        workload(asked("a"), concurrency=0)
    with pytest.raises(InternalError, match="'a' ended without being in flight"):
        Feed(workload(asked("a"))).ended("a", 1.0)
