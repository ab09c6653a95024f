"""A pool too small for its load: ``python -m benchmarks.overload`` prints what the policies make of it.

Two loads. *Oversubscribed*: 32 requests of 64 + 128 tokens on 64 pages, with reservation, with headroom and without.
*Head of line*: a request of 200 pages behind running work that leaves 50, and a stream of small ones behind it. The
running work ends all at once, or bit by bit: then small requests could take every page that comes free, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import BufferSpec, LayerSpec
from tidegate.cache import KVCacheConfig
from tidegate.request import Request
from tidegate.scheduling import Plan, SchedulerConfig
from tidegate.testing.serving import PlanningRun, make_request

BLOCK = 16
PAGES = 256
HEAVY, LIGHT, HOLDER = 200, 10, 206
VOCABULARY = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One run. ``steps`` to the end of the load, or until the large request started, and who had started by then."""

    name: str
    steps: int
    admitted: int
    recomputed: int
    suspensions: int
    longest_wait: int
    overtakes: int

    def line(self) -> str:
        """Return the row as text, aligned with ``HEADING``."""
        numbers = (self.steps, self.admitted, self.recomputed, self.suspensions, self.longest_wait, self.overtakes)
        return f"{self.name:48}" + "".join(f"{number:>13}" for number in numbers)


HEADING = f"{'':48}" + "".join(
    f"{word:>13}" for word in ("steps", "admitted", "recomputed", "suspensions", "longest wait", "overtakes")
)


def oversubscribed(**settings: object) -> PlanningRun:
    """Run 32 requests of 64 prompt and 128 output tokens on 64 pages to their ends."""
    run = _run(64, rows=32, max_seq_len=256, max_num_tokens=256, **settings)
    for number in range(32):
        run.submit(make_request(f"r{number}", [1000 * number + i for i in range(64)], max_tokens=128))
    run.run(max_steps=2000)
    return run


def head_of_line(max_overtakes: int, *, holders: int = 1, arrivals: int = 200) -> PlanningRun:
    """Let 206 pages be held for 30 steps and more, then queue a heavy request of 200 and a light one in each step.

    Several ``holders`` end one after the other. Stops when the heavy one has started, or after ``arrivals`` steps.
    """
    run = _run(PAGES, rows=64, max_seq_len=PAGES * BLOCK, max_num_tokens=8192, max_overtakes=max_overtakes)
    for number in range(holders):
        run.submit(request_of(f"holder {number}", HOLDER // holders, max_tokens=30 + number))
    run.step()
    for name, pages in (("heavy", HEAVY), ("light a", LIGHT), ("light b", LIGHT)):
        run.submit(request_of(name, pages, max_tokens=20))
    for number in range(arrivals):
        if "heavy" in admitted(run.step()):
            return run
        run.submit(request_of(f"light {number}", LIGHT, max_tokens=20))
    return run


def admitted(plan: Plan) -> list[str]:
    """Return the requests that a plan admits."""
    return [entry.waiting.request.request_id for entry in plan.admissions]


def request_of(name: str, pages: int, *, max_tokens: int) -> Request:
    """Return a request that takes ``pages`` pages when it is done, and no more than one fewer at its start."""
    first = sum(name.encode()) * 5000
    prompt = [(first + i) % VOCABULARY for i in range(pages * BLOCK - max_tokens + 1)]
    return make_request(name, prompt, max_tokens=max_tokens)


def _run(pages: int, *, rows: int, max_seq_len: int, **settings: object) -> PlanningRun:
    layers = (LayerSpec(0, "full_attention", (BufferSpec("key", 64), BufferSpec("value", 64))),)
    cache = KVCacheConfig(
        layers=layers, max_sequences=rows, max_seq_len=max_seq_len, tokens_per_block=BLOCK, pool_slots=(pages,)
    )
    config = SchedulerConfig(max_batch_size=rows, max_partial_prefills=4, **settings)  # type: ignore[arg-type]  # named by callers
    return PlanningRun(cache, config, vocab_size=VOCABULARY)


def row(name: str, run: PlanningRun) -> Row:
    """Summarise a run; waits are in steps."""
    counts = run.scheduler.statistics()
    wait = round(counts.longest_wait_s / 0.01)
    return Row(
        name, len(run.plans), counts.admitted, counts.recomputed_tokens, counts.suspended, wait, counts.overtakes
    )


def table() -> list[str]:
    """Run both loads under each policy."""
    lines = [HEADING]
    for name, settings in (
        ("oversubscribed, guaranteed_no_evict", {"capacity_policy": "guaranteed_no_evict"}),
        ("oversubscribed, max_utilization", {}),
        ("oversubscribed, without headroom", {"headroom_blocks": 0}),
    ):
        lines.append(row(name, oversubscribed(**settings)).line())
    for holders, how in ((1, "at once"), (20, "bit by bit")):
        for overtakes in (0, 16, 1 << 20):
            run = head_of_line(overtakes, holders=holders)
            lines.append(row(f"head of line, {how}, max_overtakes={overtakes}", run).line())
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
