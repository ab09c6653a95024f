"""Several ranks in one process: who serves what, what waits where, and that nobody's tokens depend on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tidegate.base import Closed, ConfigError, Int64Array, QueueFull, RankError, RequestTooLong
from tidegate.request import FinishReason, Request
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import LocalExchange, RankGroup, build_group
from tidegate.scheduling import Column, Decision
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import ForgettingEngine, make_request

LAYERS = stacked(full(), window(6))


def run_of(num_ranks: int = 2, **settings: object) -> GroupRun:
    values: dict[str, object] = {"max_batch_size": 2, "max_num_tokens": 16, "pool_slots": (40,), **settings}
    return GroupRun(num_ranks, LAYERS, tokens_per_block=4, max_seq_len=64, **values)  # type: ignore[arg-type]  # settings


def some(count: int, **fields: object) -> list[Request]:
    return [make_request(f"r{i}", 3 + 5 * i % 17, max_tokens=2 + i % 6, **fields) for i in range(count)]


def serve(run: GroupRun, requests: list[Request]) -> None:
    for request in requests:
        run.submit(request)
    outputs = run.run()
    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("policy", ["least_tokens", "prefix_affinity", "conversation"])
def test_every_request_is_served_once_whatever_the_router(num_ranks: int, policy: str) -> None:
    run = run_of(num_ranks, routing={"policy": policy})
    requests = [
        make_request(r.request_id, r.prompt.tolist(), max_tokens=4, conversation_id=f"c{i % 3}")
        for i, r in enumerate(some(17))
    ]

    serve(run, requests)

    counts = [rank.session.statistics().submitted for rank in run.group.ranks]
    assert sum(counts) == len(requests)
    assert num_ranks == 1 or min(counts) > 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("deferral", ["reserve_late", "revert", "hold"])
@pytest.mark.parametrize("num_speculative_tokens", [0, 3])
def test_tokens_do_not_depend_on_how_steps_are_taken(overlap: bool, deferral: str, num_speculative_tokens: int) -> None:
    run = run_of(
        3,
        overlap=overlap,
        deferral=deferral,
        num_speculative_tokens=num_speculative_tokens,
        attention_dp_config={"enable_balance": True, "timeout_iters": 4, "batching_wait_iters": 2},
    )
    serve(run, some(20))


def test_strict_targets_are_kept_and_impossible_ones_refused() -> None:
    run = run_of(3)
    requests = some(9, attention_dp_rank=1, attention_dp_relax=False)

    with pytest.raises(ConfigError, match="attention_dp_rank=7"):
        run.submit(make_request("x", 4, attention_dp_rank=7))
    serve(run, requests)

    assert [rank.session.statistics().submitted for rank in run.group.ranks] == [0, 9, 0]


def test_a_prefix_is_found_where_it_was_computed() -> None:
    run = run_of(2, routing={"policy": "prefix_affinity"})
    head = list(range(1, 17))
    serve(run, [make_request("first", [*head, 20], attention_dp_rank=1, max_tokens=2)])

    second = make_request("second", [*head, 21, 22], max_tokens=2)
    serve(run, [second])

    assert run.outputs["second"].num_cached_tokens == 16
    assert run.group.ranks[1].session.statistics().submitted == 2


def two_starved_ranks(**fields: object) -> GroupRun:
    """Rank 0 runs a long request beside which the next two do not fit, rank 1 one that ends soon."""
    run = run_of(
        2, max_batch_size=3, pool_slots=(24,), max_num_tokens=64, headroom_blocks=0, routing={"move_margin_tokens": 1}
    )
    for rank, (name, max_tokens) in enumerate((("first", 30), ("short", 4))):
        run.submit(make_request(name, 25, max_tokens=max_tokens, attention_dp_rank=rank, attention_dp_relax=False))
    run.step_until(lambda: all(rank.load().active for rank in run.group.ranks))
    for name in ("second", "third"):
        run.submit(make_request(name, 26, max_tokens=4, attention_dp_rank=0, **fields))
    run.step_until(lambda: run.group.ranks[0].load().waiting == 2)
    return run


def test_a_waiting_request_moves_to_a_rank_that_has_room() -> None:
    run = two_starved_ranks()

    outputs = run.run()

    assert [rank.session.statistics().submitted for rank in run.group.ranks] == [2, 2]
    assert outputs["second"].timing.finished_s < outputs["first"].timing.finished_s
    for name in ("second", "third"):
        assert outputs[name].tokens.tolist() == run.expected(make_request(name, 26, max_tokens=4))


@pytest.mark.parametrize("way", ["strict", "cancelled"])
def test_who_must_not_move_stays(way: str) -> None:
    run = two_starved_ranks(attention_dp_relax=way != "strict")
    if way == "cancelled":
        for name in ("second", "third"):
            run.group.abort(name)

    outputs = run.run()

    assert [rank.session.statistics().submitted for rank in run.group.ranks] == [3, 1]
    assert outputs["second"].finish_reason == ("length" if way == "strict" else "aborted")


def test_a_flood_for_one_rank_does_not_hold_up_the_others() -> None:
    run = run_of(3, max_batch_size=2)
    for i in range(120):
        run.submit(make_request(f"s{i}", 4, max_tokens=3, attention_dp_rank=1, attention_dp_relax=False))
    free = [make_request(f"f{i}", 4, max_tokens=3) for i in range(6)]
    for request in free:
        run.submit(request)

    run.step_until(lambda: all(request.request_id in run.outputs for request in free), max_steps=30)

    assert len(run.run()) == 126


@pytest.mark.parametrize("answer", [None, (None, "hold"), (None, None, None), Decision()])
def test_a_policy_that_answers_nonsense_is_named(answer: object) -> None:
    class Odd(Stubborn):
        def decide(self, state: None, rows: Int64Array) -> tuple[None, Decision]:
            with pytest.raises(ValueError, match="read-only"):
                rows[:] = 7
            return answer  # type: ignore[return-value]  # which is the point

    config = RuntimeConfig.from_settings({"pool_slots": (60,), "tokens_per_block": 4, "max_seq_len": 64})
    group = build_group([ForgettingEngine(LAYERS, vocab_size=31)], LocalExchange(1), config, policy=Odd())
    group.submit(make_request("r", 5))

    with pytest.raises(ConfigError, match=r"Odd\.decide returned"):
        group.step()


@pytest.mark.parametrize("value", [None, "x", 3, {}])
def test_what_is_no_request_is_refused(value: object) -> None:
    run = run_of(1)
    with pytest.raises(ConfigError, match="must be a Request"):
        run.group.submit(value)  # type: ignore[arg-type]  # which is the point
    with pytest.raises(ConfigError, match="request_id"):
        run.group.abort(["x"])  # type: ignore[arg-type]  # which is the point
    assert not run.group.has_work


@pytest.mark.parametrize("num_steps", range(12))
def test_cancelling_in_whatever_step_of_a_move_ends_the_request_once(num_steps: int) -> None:
    run = two_starved_ranks()
    ends = []
    for _ in range(num_steps):
        ends += [delta.request_id for delta in run.step() if delta.output is not None]

    for name in ("second", "third"):
        run.group.abort(name)
    while run.group.has_work:
        ends += [delta.request_id for delta in run.step() if delta.output is not None]

    assert sorted(ends) == ["first", "second", "short", "third"]
    run.check_idle()


def test_the_pages_of_padding_are_promised_to_nobody() -> None:
    run = run_of(1, pool_slots=(9,), max_num_tokens=64)  # of them 2 for padding
    with pytest.raises(RequestTooLong, match="need 8 pages in pool group 0, which has 7"):
        run.submit(make_request("long", 16, max_tokens=4))
    serve(run, [make_request("fits", 12, max_tokens=4)])


def test_the_front_queue_follows_priorities() -> None:
    run = run_of(1, policy="priority", max_batch_size=1)
    requests = [make_request(f"p{i}", 4, max_tokens=3, priority=9 - i) for i in range(5)]

    serve(run, requests)

    ends = sorted(requests, key=lambda r: run.outputs[r.request_id].timing.finished_s)
    assert [r.request_id for r in ends] == ["p4", "p3", "p2", "p1", "p0"]


def test_the_front_queue_is_bounded_and_a_refused_request_leaves_no_trace() -> None:
    run = run_of(1, max_waiting=2, max_batch_size=1)
    requests = some(2)
    for request in requests:
        run.submit(request)

    with pytest.raises(QueueFull, match="max_waiting=2"):
        run.submit(make_request("late", 3))
    assert run.run().keys() == {"r0", "r1"}
    serve(run, [make_request("late", 3)])


def test_what_can_never_be_served_is_refused_at_once() -> None:
    run = run_of(2)
    with pytest.raises(RequestTooLong):
        run.submit(make_request("long", 60, max_tokens=30))
    with pytest.raises(ConfigError, match="prompt"):
        run.submit(make_request("alien", [31]))
    assert not run.group.has_work


def test_an_id_is_free_again_when_its_request_has_ended() -> None:
    run = run_of(2)
    run.submit(make_request("r", 5))
    with pytest.raises(ConfigError, match="in use"):
        run.submit(make_request("r", 5))
    run.run()
    serve(run, [make_request("r", 7)])


def test_time_outs_end_requests_in_the_front_queue_and_on_their_rank() -> None:
    run = run_of(1, max_batch_size=1, max_num_tokens=16)
    run.submit(make_request("runs", 4, max_tokens=40, timeout_s=0.5))
    run.submit(make_request("waits", 4, max_tokens=4, timeout_s=0.2))
    run.submit(make_request("in time", 4, max_tokens=4))

    outputs = run.run()

    reasons = {name: output.finish_reason for name, output in outputs.items()}
    assert reasons == {"runs": "aborted", "waits": "aborted", "in time": "length"}
    assert 0.5 <= outputs["runs"].timing.finished_s < 0.6
    assert outputs["waits"].timing.admitted_s is None


def test_cancelling_reaches_a_request_wherever_it_is() -> None:
    run = run_of(2, max_batch_size=1)
    for i in range(6):
        run.submit(make_request(f"r{i}", 5, max_tokens=20))
    run.group.abort("r5")  # not yet sent
    run.step()
    run.step()
    run.group.abort("r0")
    run.group.abort("r4")  # in the front queue
    run.group.abort("never was")

    outputs = run.run()

    aborted = {name for name, output in outputs.items() if output.finish_reason is FinishReason.ABORTED}
    assert aborted == {"r0", "r4", "r5"}
    assert len(outputs) == 6


def test_streams_bring_every_token_in_order() -> None:
    run = run_of(2)
    requests = some(8)
    seen: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for request in requests:
        run.group.submit(request, stream=True)

    while run.group.has_work:
        for delta in run.step():
            seen[delta.request_id] += delta.tokens.tolist()

    assert seen == {request.request_id: run.expected(request) for request in requests}


def test_idle_ranks_take_no_step() -> None:
    run = run_of(1)
    serve(run, some(3))
    last = run.group.last
    assert run.group.ranks[0].num_padding_steps == 0  # it ran whenever anybody did

    assert run.step() == []
    assert run.group.last is last


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_engine_computes_in_every_step_or_none_does(overlap: bool, seed: int) -> None:
    print(f"seed={seed}")
    rng = np.random.default_rng(seed)
    calls = [0, 0, 0]

    def count(rank: int) -> None:
        calls[rank] += 1

    run = run_of(3, overlap=overlap, on_forward=count)
    for request in some(9, attention_dp_rank=0, attention_dp_relax=bool(seed % 2)):
        # One that stops is in the next step already, with overlap: that step may have nothing else.
        run.submit(replace(request, stop_token_ids=tuple(run.expected(request)[2:3])))
    num_run = 0
    while run.group.has_work:
        if rng.random() < 0.3:
            run.group.abort(f"r{rng.integers(9)}")
        before = run.group.last
        run.step()
        num_run += run.group.last is not before and run.group.last is not None and run.group.last.is_run
    run.group.close()  # with overlap, a last padding step may still be under way

    assert calls == [num_run] * 3
    assert num_run > 3


def test_told_to_stop_a_group_answers_everybody_and_takes_nothing_more() -> None:
    run = run_of(2, max_batch_size=1)
    for i in range(5):
        run.submit(make_request(f"r{i}", 5, max_tokens=30))
    run.step()
    run.step()

    run.group.stop()
    with pytest.raises(Closed):
        run.submit(make_request("late", 5))
    run.step_until(lambda: run.group.is_stopped)

    assert {output.finish_reason for output in run.outputs.values()} == {"aborted"}
    assert len(run.outputs) == 5
    run.group.close()
    run.check_idle()


def test_a_rank_that_decided_otherwise_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(3)
    run.submit(make_request("r", 5))
    run.step()
    gather = run.group._exchange.gather

    def tampered(rows: Int64Array) -> Int64Array:
        rows = gather(rows)
        rows[2, Column.DIGEST] += 1
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(run.group._exchange, "gather", tampered)
        with pytest.raises(RankError, match=r"ranks \[2\] decided otherwise"):
            run.step()
    run.run()


class Stubborn:
    """Always holds."""

    def start(self) -> None:
        """Return no state."""

    def decide(self, state: None, rows: Int64Array) -> tuple[None, Decision]:
        """Hold."""
        return None, Decision(hold=True)


def stubborn(deferral: str, bound: int) -> RankGroup:
    config = RuntimeConfig.from_settings(
        {
            "pool_slots": (60,),
            "tokens_per_block": 4,
            "max_seq_len": 64,
            "max_batch_size": 3,
            "max_num_tokens": 16,
            "deferral": deferral,
            "attention_dp_config": {"max_hold_iters": bound},
        }
    )
    engines: list[FakeEngine] = [ForgettingEngine(LAYERS, vocab_size=31) for _ in range(2)]
    return build_group(engines, LocalExchange(2), config, policy=Stubborn())


@pytest.mark.parametrize("deferral", ["reserve_late", "revert", "hold"])
@pytest.mark.parametrize("bound", [0, 1, 5])
def test_no_policy_holds_a_prefill_past_its_bound(deferral: str, bound: int) -> None:
    group = stubborn(deferral, bound)
    group.submit(make_request("first", 4, max_tokens=40, attention_dp_rank=0))
    group.step()
    group.step()
    group.submit(make_request("second", 30, max_tokens=2, attention_dp_rank=1))
    group.step()

    held: list[int] = []
    while group.has_work and len(held) < 60:
        group.step()
        assert group.last is not None
        held.append(group.last.held[1])

    assert held[: bound + 1] == [1] * bound + [0]
    assert sum(held) == bound  # later chunks are never held


def test_nothing_is_held_when_nothing_else_would_run() -> None:
    group = stubborn("reserve_late", 1000)
    group.submit(make_request("only", 30, max_tokens=2))

    for _ in range(10):
        group.step()

    assert not group.has_work


def test_batch_waiting_and_balance_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="batch_wait_timeout_iters=3 must be 0"):
        run_of(2, batch_wait_timeout_iters=3, attention_dp_config={"enable_balance": True})


def test_one_engine_for_each_rank() -> None:
    with pytest.raises(ConfigError, match="engines"):
        build_group([ForgettingEngine(LAYERS, vocab_size=31)], LocalExchange(2), RuntimeConfig())


def test_balance_is_measured_from_what_ranks_computed() -> None:
    run = run_of(2)
    for i in range(2):
        run.submit(make_request(f"r{i}", 9, max_tokens=8, attention_dp_rank=0, attention_dp_relax=False))

    run.run()

    assert run.group.meter.ratio == pytest.approx(0.5)
    assert np.isclose(run.group.meter.ratio_by_time, 0.5)
