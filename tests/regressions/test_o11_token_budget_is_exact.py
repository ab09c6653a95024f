"""O11: tokens sent never exceed the budget, with reuse, chunks and a tight pool."""

import random

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def test_first_chunk_begins_behind_the_reused_and_costs_what_it_computes() -> None:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=16, max_seq_len=256, tokens_per_block=8, pool_slots=(200,)
    )
    config = SchedulerConfig(max_num_tokens=64, max_batch_size=16, max_chunk_tokens=32, max_partial_prefills=2)
    run = PlanningRun(cache, config)
    heads = [[100 + i for i in range(48)], [300 + i for i in range(48)]]
    for number, head in enumerate(heads):
        run.submit(make_request(f"warm{number}", [*head, 1], max_tokens=1))
    run.run()
    for number in range(8):
        run.submit(make_request(f"decoder{number}", 4, max_tokens=30))
    run.step()

    for number, head in enumerate(heads):
        run.submit(make_request(f"prompt{number}", [*head, *range(500, 552)], max_tokens=2))
    plan = run.step()

    assert len(plan.decodes) == 8
    assert [(entry.start, entry.end) for entry in plan.admissions] == [(48, 80), (48, 72)]
    assert plan.num_tokens == 64
    run.run()


def test_match_evicted_for_another_admission_is_measured_again() -> None:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=4, max_seq_len=256, tokens_per_block=8, pool_slots=(20,)
    )
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=256, max_batch_size=4, headroom_blocks=0))
    head = [200 + i for i in range(48)]
    run.submit(make_request("warm", [*head, 1], max_tokens=1))
    run.run()

    run.submit(make_request("big", 150, max_tokens=2))  # takes 19 of 20 pages, so six cached ones must go
    run.submit(make_request("reuser", [*head, *range(300, 340)], max_tokens=2))
    outputs = run.run()

    assert [len(plan.admissions) for plan in run.plans if plan.admissions][1:] == [1, 1]
    assert all(output.num_tokens == 2 for output in (outputs["big"], outputs["reuser"]))


def test_random_load_in_a_tight_pool_keeps_to_the_budget_and_to_the_right_tokens() -> None:
    rng = random.Random(1)
    run = ServingRun(
        stacked(full(), window(12)),
        tokens_per_block=8,
        pool_slots=(48,),
        max_seq_len=256,
        max_num_tokens=64,
        max_batch_size=8,
        max_chunk_tokens=32,
        max_partial_prefills=2,
    )
    heads = [[rng.randrange(31) for _ in range(48)] for _ in range(3)]
    requests = []
    sent = 0
    for step in range(300):
        if step % 6 == 0:
            head = rng.choice(heads)[: rng.randrange(1, 48)]
            tail = [rng.randrange(31) for _ in range(rng.randrange(1, 30))]
            requests.append(make_request(f"r{step}", head + tail, max_tokens=rng.randrange(1, 24)))
            run.submit(requests[-1])
        run.step()
        counts = run.session.statistics()
        total = counts.prefill_tokens + counts.decode_tokens
        assert total - sent <= 64
        sent = total
    outputs = run.run()

    assert run.session.statistics().hit_tokens > 0
    for request in requests:
        assert outputs[request.request_id].tokens.tolist() == run.expected(request)
