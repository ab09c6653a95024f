from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tidegate.base import ConfigError, InternalError, RequestTooLong, VirtualClock
from tidegate.bench import Load, Outcome, Progress, TargetStatistics, run_load
from tidegate.request import FinishReason, Request, token_array

STEP_S = 0.5


@dataclass
class SteppingTarget:
    """One token of each request per half second of virtual time; idle time passes as long as it is told to."""

    clock: VirtualClock
    seen: list[Request] = field(default_factory=list)
    most: int = 0
    started: int = 0
    left: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.started += 1

    def submit(self, request: Request) -> None:
        if request.num_prompt_tokens > 100:
            raise RequestTooLong("too long")
        self.seen.append(request)
        self.left[request.request_id] = request.max_tokens
        self.most = max(self.most, len(self.left))

    def wait(self, timeout_s: float | None) -> Sequence[Progress]:
        if not self.left:
            assert timeout_s is not None, "nothing in flight and nothing to wait for"
            self.clock.advance(timeout_s)
            return []
        self.clock.advance(STEP_S)
        return [self._token(request_id) for request_id in list(self.left)]

    def statistics(self) -> TargetStatistics:
        return TargetStatistics()

    def _token(self, request_id: str) -> Progress:
        self.left[request_id] -= 1
        finish = None
        if not self.left[request_id]:
            del self.left[request_id]
            finish = FinishReason.LENGTH
        return Progress(
            request_id=request_id,
            at_s=self.clock.now(),
            num_tokens=1,
            finish_reason=finish,
            num_cached_tokens=2 if finish else 0,
        )


def requests(count: int, max_tokens: int = 2, prompt: int = 3) -> list[Request]:
    return [Request(request_id=f"r{i}", prompt=token_array([1] * prompt), max_tokens=max_tokens) for i in range(count)]


def test_closed_loop_keeps_the_concurrency_and_finishes_everything() -> None:
    clock = VirtualClock(100.0)
    target = SteppingTarget(clock)

    run = run_load(target, requests(5), Load(concurrency=2), clock)

    assert (target.started, target.most, len(run.outcomes)) == (1, 2, 5)
    assert [outcome.request_id for outcome in run.outcomes] == ["r0", "r1", "r2", "r3", "r4"]
    assert {outcome.ttft_s for outcome in run.outcomes} == {STEP_S}
    assert clock.now() == 100.0 + 3 * 2 * STEP_S


def test_without_a_limit_everything_is_sent_at_once() -> None:
    clock = VirtualClock()
    target = SteppingTarget(clock)

    run_load(target, requests(5), Load(), clock)

    assert target.most == 5


def test_rate_decides_when_requests_arrive_and_idle_time_passes() -> None:
    clock = VirtualClock()
    target = SteppingTarget(clock)

    run = run_load(target, requests(3), Load(request_rate=0.5, spacing="even"), clock)

    assert [request.arrival_s for request in target.seen] == [0.0, 2.0, 4.0]
    assert [outcome.finished_s for outcome in run.outcomes] == [1.0, 3.0, 5.0]


def test_waiting_for_a_place_counts_as_latency() -> None:
    clock = VirtualClock()

    run = run_load(SteppingTarget(clock), requests(2), Load(concurrency=1, request_rate=10.0, spacing="even"), clock)

    second = run.outcomes[1]
    assert second.arrival_s == 0.1
    assert second.ttft_s == pytest.approx(1.4)


def test_outcomes_tell_tokens_times_and_cache() -> None:
    clock = VirtualClock()
    told: list[Outcome] = []

    run = run_load(SteppingTarget(clock), requests(1, max_tokens=3), Load(), clock, told.append)

    (outcome,) = run.outcomes
    assert told == [outcome]
    assert (outcome.num_tokens, outcome.num_cached_tokens, outcome.finish_reason) == (3, 2, FinishReason.LENGTH)
    assert (outcome.tpot_s, outcome.latency_s) == (STEP_S, 3 * STEP_S)


def test_refusal_ends_the_run() -> None:
    clock = VirtualClock()

    with pytest.raises(RequestTooLong):
        run_load(SteppingTarget(clock), requests(1, prompt=101), Load(), clock)


def test_ids_must_differ() -> None:
    clock = VirtualClock()

    with pytest.raises(ConfigError, match="different ids"):
        run_load(SteppingTarget(clock), requests(1) * 2, Load(), clock)


def test_progress_of_an_unknown_request_is_breakage() -> None:
    clock = VirtualClock()
    target = SteppingTarget(clock, left={"stranger": 1})

    with pytest.raises(InternalError, match="stranger"):
        run_load(target, requests(1), Load(), clock)
