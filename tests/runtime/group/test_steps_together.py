"""A rank that fails, or holds prefills back, still takes part in every step, and gives back what it took for it."""

from __future__ import annotations

import pytest

from tidegate.base import EngineError, Int64Array, RequestTooLong
from tidegate.request import FinishReason, Request
from tidegate.scheduling import Balancer, Decision
from tidegate.testing.group_run import GroupRun
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import make_request

LAYERS = stacked(full(), window(6))
DEFERRALS = ("reserve_late", "revert", "hold")
every_deferral = pytest.mark.parametrize("deferral", DEFERRALS)


def run_of(num_ranks: int = 2, **settings: object) -> GroupRun:
    values: dict[str, object] = {"max_batch_size": 6, "max_num_tokens": 32, "max_partial_prefills": 4, **settings}
    return GroupRun(num_ranks, LAYERS, pool_slots=(90,), tokens_per_block=4, max_seq_len=64, **values)  # type: ignore[arg-type]  # settings


class Switch:
    """Decides what it is told."""

    decision = Decision()

    def start(self) -> None:
        pass

    def decide(self, state: object, rows: Int64Array) -> tuple[object, Decision]:
        return None, self.decision


@every_deferral
def test_pages_of_a_plan_return_when_the_padding_step_before_it_has_failed(deferral: str) -> None:
    run = run_of(overlap=True, deferral=deferral, max_num_tokens=8)
    policy, rank = Switch(), run.group.ranks[1]
    run.group._balancer = Balancer(policy, 100)
    requests = [make_request(f"r{i}", length, max_tokens=20, attention_dp_rank=i) for i, length in enumerate((5, 30))]
    for request in requests:
        run.submit(request)
    run.step_until(lambda: rank.load().active == 1)
    rank._loop.settle()
    policy.decision = Decision(hold=True, holds_all_chunks=True)
    run.engines[1].fail_next()
    run.step()  # rank 1 is in the middle of a prompt, and pads
    policy.decision = Decision()

    with pytest.raises(EngineError, match="as told"):
        run.step()

    outputs = run.run()
    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)


@every_deferral
def test_a_group_closes_whole_when_its_last_padding_step_has_failed(deferral: str) -> None:
    run = run_of(overlap=True, deferral=deferral)
    run.submit(make_request("a", 5, max_tokens=20, attention_dp_rank=1))
    rank = run.group.ranks[0]
    run.step_until(lambda: rank.num_padding_steps > 2)
    rank._loop.settle()  # else it could be an earlier one that fails
    run.engines[0].fail_next()
    run.step()

    with pytest.raises(EngineError, match="as told"):
        run.group.close()

    run.check_idle()
    run.group.close()  # nothing is left to do


def test_a_rank_whose_step_failed_computes_the_next_one_with_the_others() -> None:
    counts = [0, 0]

    def count(rank: int) -> None:
        counts[rank] += 1

    run = run_of(overlap=True, on_forward=count)
    for i in range(2):
        run.submit(make_request(f"r{i}", 5, max_tokens=20, attention_dp_rank=i))
    for _ in range(5):
        run.step()

    run.engines[0].fail_next()
    run.run()

    assert counts[0] == counts[1]


@pytest.mark.parametrize("replay", [False, True])
def test_hold_keeps_the_pages_of_what_any_policy_holds(replay: bool) -> None:
    balance = {"enable_balance": True, "timeout_iters": 20, "batching_wait_iters": 8, "replay": replay}
    run = run_of(1, deferral="hold", attention_dp_config=balance)
    decoding, held = make_request("d", 5, max_tokens=40), make_request("p", 9)
    run.submit(decoding)
    for _ in range(4):
        run.step()
    run.submit(held)

    def is_kept() -> bool:
        last = run.group.last
        return last is not None and last.held == (1,) and run.group.ranks[0].manager.statistics().reserved > (0,)

    run.step_until(is_kept, 6)
    outputs = run.run()
    for request in (decoding, held):
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)


def test_pages_promised_to_running_requests_allow_for_prefills_that_are_held() -> None:
    balance = {"enable_balance": True, "timeout_iters": 20, "batching_wait_iters": 20}
    run = run_of(1, deferral="hold", capacity_policy="guaranteed_no_evict", attention_dp_config=balance)
    requests = [make_request(f"a{i}", 9 + i, max_tokens=20) for i in range(6)]
    for request in requests[:3]:
        run.submit(request)
    run.step_until(lambda: run.group.ranks[0].load().active == 3)

    for request in requests[3:]:
        run.submit(request)
        run.step()
        run.step()

    outputs = run.run()
    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)
    assert run.group.ranks[0].session.statistics().suspended == 0


@every_deferral
def test_an_id_that_is_used_again_never_gets_what_was_kept_for_the_first(deferral: str) -> None:
    balance = {"enable_balance": True, "timeout_iters": 20, "batching_wait_iters": 9}
    run = run_of(1, deferral=deferral, attention_dp_config=balance)
    run.submit(make_request("d", 5, max_tokens=40))
    for _ in range(4):
        run.step()
    run.submit(make_request("p", 9))
    for _ in range(4):
        run.step()  # it is held
    session, again = run.group.ranks[0].session, make_request("p", [3] * 11, max_tokens=5)

    session.abort("p")
    session.submit(again)

    assert run.run()["p"].tokens.tolist() == run.expected(again)


def test_a_request_that_only_its_rank_refuses_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Request, *, stream: bool) -> None:
        raise RequestTooLong("the pools of this rank are smaller")

    run = run_of()
    monkeypatch.setattr(run.group.ranks[1].session, "submit", refuse)
    requests = [make_request(f"r{i}", 5, attention_dp_rank=i) for i in range(2)]
    for request in requests:
        run.submit(request)

    outputs = run.run()

    assert outputs["r0"].tokens.tolist() == run.expected(requests[0])
    assert outputs["r1"].finish_reason is FinishReason.ERROR
    assert outputs["r1"].error == "RequestTooLong: the pools of this rank are smaller"


@every_deferral
def test_a_cut_meets_a_kept_prefill_whose_prefix_was_cached_meanwhile(deferral: str) -> None:
    run = run_of(1, deferral=deferral, max_chunk_tokens=8, share_prefixes=False)
    policy = Switch()
    run.group._balancer = Balancer(policy, 100)
    prompt = [3 * i % 31 for i in range(40)]
    requests = [
        make_request("d", 5, max_tokens=40),
        make_request("owner", prompt),
        make_request("late", prompt[:23], max_tokens=6),
    ]
    run.submit(requests[0])
    for _ in range(3):
        run.step()
    run.submit(requests[1])
    run.step_until(lambda: run.group.ranks[0].load().active == 2)
    run.submit(requests[2])
    policy.decision = Decision(hold=True)
    for _ in range(2):
        run.step()  # the owner goes on, and what it has computed can be reused
    policy.decision = Decision(max_tokens=13)

    outputs = run.run()

    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)
