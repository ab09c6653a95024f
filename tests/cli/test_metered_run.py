"""The meter over a whole run, held against the cache's own count and against a run that really has no scratch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tidegate.base import BufferSpec, KVLayout, LayerSpec, PoolMemory, VirtualClock
from tidegate.bench import TargetStatistics
from tidegate.cli.page_meter import MeteredEngine
from tidegate.engine import StepInput
from tidegate.request import Request, token_array
from tidegate.runtime import RuntimeConfig, build_manager, build_session

BUFFERS = (BufferSpec("key", 4), BufferSpec("value", 4))


class SilentEngine:
    """Says token 0, whatever it is asked."""

    vocab_size = 16

    def kv_layers(self) -> tuple[LayerSpec, ...]:
        windowed = tuple(LayerSpec(i, "sliding_attention", BUFFERS, window=8, sink_tokens=2) for i in range(4))
        return (*windowed, LayerSpec(4, "full_attention", BUFFERS))

    def bind(self, layout: KVLayout, pools: Sequence[PoolMemory]) -> None:
        pass

    def forward(self, step: StepInput) -> npt.ArrayLike:
        return np.zeros((len(step.logit_positions), self.vocab_size), np.float32)


def run(*, scratch: bool, shared: int = 0) -> tuple[TargetStatistics, list[int]]:
    """Serve three prompts together; return what was metered and the peaks that the cache counted itself."""
    config = RuntimeConfig.from_settings(
        {
            "device_bytes": 1 << 15,
            "tokens_per_block": 4,
            "max_seq_len": 128,
            "max_num_tokens": 48,
            "max_batch_size": 3,
            "max_partial_prefills": 3,
            "swa_scratch_reuse": scratch,
            "share_prefixes": False,
        }
    )
    engine = MeteredEngine(SilentEngine(), VirtualClock())
    manager = build_manager(engine, config)
    meter = engine.watch(manager)
    session = build_session(engine, manager, config, clock=VirtualClock())
    for i, length in enumerate((70, 45, 33)):
        prompt = token_array([1] * shared + [i + 2] * (length - shared))
        session.submit(Request(request_id=str(i), prompt=prompt, max_tokens=9))
    while session.has_work:
        session.step()
    manager.audit()
    return meter.statistics(num_suspensions=0), [group.peak_owned for group in manager.statistics().groups]


def test_the_meter_counts_what_the_cache_counts() -> None:
    metered, counted = run(scratch=True)

    assert [group.peak_pages for group in metered.groups] == counted
    assert metered.pages is not None and list(metered.pages.peaks) == counted


@pytest.mark.parametrize("shared", [0, 12])
def test_the_number_without_scratch_is_that_of_a_run_without(shared: int) -> None:
    with_scratch, _ = run(scratch=True, shared=shared)
    without, _ = run(scratch=False, shared=shared)

    assert [g.plain_peak for g in with_scratch.groups] == [g.peak_pages for g in without.groups]
    assert with_scratch.groups[0].peak_pages < without.groups[0].peak_pages
    assert with_scratch.num_steps == without.num_steps
