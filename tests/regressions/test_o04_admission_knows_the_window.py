"""O04: a windowed group needs its window and one chunk; what can never fit is cut, what does not fit now waits."""

from tidegate.cache import KVCacheConfig
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked, window
from tidegate.testing.serving import PlanningRun, make_request

WINDOWED = 1


def run_of(budget: int, **config: object) -> PlanningRun:
    cache = KVCacheConfig(
        layers=stacked(full(), window(128)),
        max_sequences=8,
        max_seq_len=8192,
        tokens_per_block=64,
        pool_slots=(256, 16),
        separate_pools=True,
        swa_scratch_reuse=False,
        enable_prefix_caching=False,
        max_chunk_tokens=budget,
    )
    values = {"max_num_tokens": budget + 64, "max_batch_size": 8, "max_chunk_tokens": budget, **config}
    return PlanningRun(cache, SchedulerConfig(**values))  # type: ignore[arg-type]  # as given by each test


def chunks(run: PlanningRun, request_id: str) -> list[tuple[int, int]]:
    """Prefill chunks planned so far; only one request prefills in these runs."""
    found = []
    for plan in run.plans:
        found += [(e.start, e.end) for e in plan.admissions if e.waiting.request.request_id == request_id]
        found += [(c.start, c.end) for c in plan.chunks]
    return found


def test_long_prompt_takes_its_window_and_a_chunk() -> None:
    run = run_of(512)
    run.submit(make_request("long", 4096, max_tokens=1))
    run.run()

    assert chunks(run, "long") == [(i * 512, i * 512 + 512) for i in range(8)]
    assert 16 - run.least_supply[WINDOWED] == 10


def test_chunk_that_can_never_fit_is_cut_and_those_behind_finish() -> None:
    run = run_of(2048)
    run.submit(make_request("long", 4096, max_tokens=1))
    run.submit(make_request("short", 64, max_tokens=2))

    outputs = run.run()

    assert outputs["long"].num_tokens == 1
    assert outputs["short"].num_tokens == 2
    lengths = [end - start for start, end in chunks(run, "long") if end < 4096]
    assert max(lengths[1:]) <= 896
    assert run.scheduler.statistics().suspended == 0


def test_chunk_that_does_not_fit_now_waits_uncut_and_nobody_is_suspended() -> None:
    run = run_of(512, headroom_blocks=0)
    for name in "abc":
        run.submit(make_request(name, 200, max_tokens=12))
    while run.scheduler.statistics().running < 3 or run.plans[-1].num_tokens > 3:
        run.step()
    assert run.supply[WINDOWED] == 7  # three decoders hold three windowed blocks each

    run.submit(make_request("long", 4096, max_tokens=1))
    waiting = run.step()
    run.run()

    assert waiting.wait is not None
    assert (waiting.wait.request_id, waiting.wait.reason) == ("long", "pages")
    assert chunks(run, "long")[-8] == (0, 512)
    assert run.scheduler.statistics().suspended == 0


def test_chunk_that_can_never_fit_is_cut_beside_others_too() -> None:
    cache = KVCacheConfig(
        layers=stacked(full(block_tokens=64), window(16, block_tokens=16)),
        max_sequences=8,
        max_seq_len=8192,
        tokens_per_block=16,
        pool_slots=(256, 18),
        separate_pools=True,
        swa_scratch_reuse=False,
        enable_prefix_caching=False,
        max_chunk_tokens=512,
    )
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=576, max_batch_size=8, headroom_blocks=0))
    run.submit(make_request("decoder", 10, max_tokens=30))
    run.step()
    run.submit(make_request("long", 1000, max_tokens=1))

    plan = run.step()  # 512 tokens are 32 windowed blocks of 18; 256 are 16, and the decoder needs no more than 2

    assert len(plan.decodes) == 1
    assert [(entry.start, entry.end) for entry in plan.admissions] == [(0, 256)]
    run.run()
