"""O31: one query and hit record per request, at admission; what a suspended request finds again is counted apart."""

import random

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, make_request

HEAD = [500 + i for i in range(48)]


def run_of(pages: int, *, rows: int = 8, vocab: int = 1000) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full()), max_sequences=rows, max_seq_len=512, tokens_per_block=16, pool_slots=(pages,)
    )
    config = SchedulerConfig(max_num_tokens=128, max_batch_size=rows, headroom_blocks=0)
    return PlanningRun(cache, config, vocab_size=vocab)


def test_waiting_without_room_is_not_counted() -> None:
    run = run_of(12)
    run.submit(make_request("warm", [*HEAD, 1], max_tokens=1))
    run.run()
    before = run.scheduler.statistics()
    held = run.manager.create([900 + i % 50 for i in range(144)])
    assert held.resize(144)
    run.submit(make_request("r", [*HEAD, *range(16)], max_tokens=16))
    for _ in range(9):
        assert not run.step().admissions
    held.close()
    run.run()

    after = run.scheduler.statistics()
    assert after.queried_tokens - before.queried_tokens == 64
    assert after.hit_tokens - before.hit_tokens == 48
    assert run.outputs["r"].num_cached_tokens == 48


def test_rematch_after_suspension_is_counted_apart() -> None:
    run = run_of(8, rows=2)
    run.submit(make_request("old", 30, max_tokens=60))
    run.submit(make_request("young", 30, max_tokens=60))
    outputs = run.run()

    counts = run.scheduler.statistics()
    assert counts.suspended > 0
    assert counts.queried_tokens == 60
    assert counts.hit_tokens == 0
    assert counts.rematched_tokens > 0
    assert all(output.num_cached_tokens == 0 for output in outputs.values())


def test_random_prompts_under_heavy_suspension_have_no_hits() -> None:
    rng = random.Random(3)
    run = run_of(10, vocab=1 << 20)
    for number in range(60):
        run.submit(make_request(f"r{number}", [rng.randrange(1 << 20) for _ in range(20)], max_tokens=30))
    run.run(max_steps=3000)

    counts = run.scheduler.statistics()
    assert counts.suspended > 20
    assert counts.hit_tokens <= 60 * 0  # a shared first token would be one in a million
