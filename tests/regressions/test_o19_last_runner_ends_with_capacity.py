"""O19: the last decoding request that finds no page ends with a reason; the server lives."""

import pytest

from tidegate.cache import KVCacheConfig
from tidegate.request import FinishReason, SamplingParams
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def test_lone_request_ends_when_every_position_is_full() -> None:
    cache = KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=256, tokens_per_block=4, pool_slots=(8,))
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=32, max_batch_size=4))
    run.submit(make_request("R", 20, max_tokens=100, run_to_capacity=True))

    assert run.run()["R"].finish_reason is FinishReason.CAPACITY
    assert run.outputs["R"].num_tokens == 13  # the thirteenth token needs no position of its own

    run.submit(make_request("later", 8, max_tokens=4))
    assert run.run()["later"].num_tokens == 4


def test_runner_beside_pages_held_by_others_ends_and_the_others_go_on() -> None:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=4, max_seq_len=256, tokens_per_block=4, pool_slots=(16,)
    )
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=64, max_batch_size=4, headroom_blocks=0))
    run.submit(make_request("R", 22, max_tokens=30))
    run.step()
    incoming = [run.manager.create([900 + i] * 20) for i in range(2)]
    assert all(transfer.resize(20) for transfer in incoming)
    for _ in range(5):
        run.step()

    for transfer in incoming:
        transfer.close()
    run.submit(make_request("arrival", 8, max_tokens=4))
    outputs = run.run()

    assert outputs["R"].finish_reason in (FinishReason.CAPACITY, FinishReason.LENGTH)
    assert outputs["arrival"].num_tokens == 4


def test_output_is_whole_after_suspension_and_replay() -> None:
    run = ServingRun(
        stacked(full()),
        tokens_per_block=4,
        pool_slots=(12,),
        max_seq_len=64,
        max_num_tokens=64,
        max_batch_size=4,
        headroom_blocks=0,
    )
    requests = [make_request(f"r{i}", 5 + i, max_tokens=16) for i in range(4)]
    for request in requests:
        run.submit(request, stream=True)
    outputs = run.run()

    assert run.session.statistics().suspended > 0
    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)
        assert run.deltas[request.request_id] == run.expected(request)


def test_log_probabilities_match_the_tokens_after_suspension_and_replay() -> None:
    pytest.importorskip("torch")  # without it nothing is scored
    run = ServingRun(
        stacked(full()), tokens_per_block=4, pool_slots=(12,), max_seq_len=64, max_batch_size=4, headroom_blocks=0
    )
    sampling = SamplingParams(temperature=0.0, logprobs=1)
    for number in range(4):
        run.submit(make_request(f"r{number}", 5 + number, max_tokens=16, sampling=sampling))
    outputs = run.run()

    assert max(output.num_suspensions for output in outputs.values()) > 0
    for output in outputs.values():
        assert output.logprobs is not None
        assert [scored.token for scored in output.logprobs] == output.tokens.tolist()
