"""O16: the victim of a priority preemption was already in the step; it must be withdrawn and refunded."""

from tidegate.cache import KVCacheConfig
from tidegate.request import Request
from tidegate.scheduling import SchedulerConfig
from tidegate.testing.layouts import full, stacked
from tidegate.testing.serving import PlanningRun, ServingRun, make_request


def requests() -> list[Request]:
    """Running in this order, with 11, 3 and 12 tokens in 3, 1 and 3 blocks, after the first step."""
    return [
        make_request("L", 10, priority=5, max_tokens=12),
        make_request("M", 2, priority=3, max_tokens=6),
        make_request("U", 11, priority=0, max_tokens=12),
    ]


def test_victim_is_withdrawn_and_the_others_are_visited_once() -> None:
    cache = KVCacheConfig(layers=stacked(full()), max_sequences=4, max_seq_len=64, tokens_per_block=4, pool_slots=(7,))
    run = PlanningRun(cache, SchedulerConfig(max_num_tokens=32, max_batch_size=4, headroom_blocks=0))
    for request in requests():
        run.submit(request)
    run.step()
    rows = {name: run.scheduler.sequences.row_of(name) for name in "LMU"}
    run.step()
    assert run.supply == (0,)

    plan = run.step()  # L fits in its third block and M in its first, U needs a fourth

    assert plan.decodes.tolist() == [rows["M"], rows["U"]]
    assert plan.victims == (rows["L"],)
    assert plan.num_tokens == plan.num_sequences == 2
    assert run.scheduler.sequences.row_of("L") is None
    assert run.scheduler.statistics().waiting == 1
    assert run.supply == (7 - 1 - 4,)


def test_victim_ends_with_the_output_of_a_run_without_pressure() -> None:
    tight, ample = (
        ServingRun(
            stacked(full()),
            tokens_per_block=4,
            pool_slots=(pages,),
            max_seq_len=64,
            max_num_tokens=32,
            max_batch_size=4,
            headroom_blocks=0,
        )
        for pages in (7, 64)
    )
    for run in (tight, ample):
        for request in requests():
            run.submit(request)
        run.run()

    assert tight.outputs["L"].num_suspensions > 0
    assert ample.session.statistics().suspended == 0
    for name in "LMU":
        assert tight.outputs[name].tokens.tolist() == ample.outputs[name].tokens.tolist()
