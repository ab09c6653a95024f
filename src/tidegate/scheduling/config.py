"""Settings of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.base import ConfigError, check_bool, check_integer, check_real, shown

PolicyName = Literal["fcfs", "priority", "shortest_uncached_first"]
CapacityPolicy = Literal["max_utilization", "guaranteed_no_evict"]
_CHOICES = {
    "policy": ("fcfs", "priority", "shortest_uncached_first"),
    "capacity_policy": ("max_utilization", "guaranteed_no_evict"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """``max_num_tokens`` per step, after reuse; ``max_batch_size`` active sequences; ``max_waiting`` None: no limit.

    ``max_chunk_tokens`` bounds one sequence's chunk; None: only the step's budget does.
    ``max_partial_prefills`` sequences may be in the middle of their prompt after a step. While anything is active, an
    admission leaves room for ``headroom_blocks`` more blocks of each active sequence, at most ``headroom_share`` of a
    pool. ``share_prefixes`` lets requests wait for an equal prefix that another is computing. A plan looks at no more
    waiting requests than it has seats, plus ``extra_probes``. ``max_prompt_tokens`` None: no limit but the cache's.

    A request that cannot run for want of pages is overtaken at most ``max_overtakes`` times; 0: never. With
    ``shortest_uncached_first`` one that was passed over by ``context_starvation_iterations`` plans goes first. With
    ``guaranteed_no_evict`` a request starts only when all of its length can be kept for it, and ``headroom_*`` do not
    apply. While others decode, ``batch_wait_timeout_iters`` steps at most hold first chunks of steps of fewer tokens
    than ``batch_wait_max_tokens_ratio`` of ``max_num_tokens``; while nothing runs, ``batch_wait_timeout_ms`` holds them
    from the first arrival on until ``max_batch_size`` requests wait. 0: off.
    """

    max_num_tokens: int = 2048
    max_batch_size: int = 64
    policy: PolicyName = "fcfs"
    max_chunk_tokens: int | None = None
    max_partial_prefills: int = 1
    max_waiting: int | None = None
    headroom_blocks: int = 2
    headroom_share: float = 0.1
    share_prefixes: bool = True
    extra_probes: int = 8
    max_prompt_tokens: int | None = None
    max_overtakes: int = 16
    context_starvation_iterations: int = 64
    capacity_policy: CapacityPolicy = "max_utilization"
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0.0
    batch_wait_timeout_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_num_tokens", "max_batch_size", "max_partial_prefills"):
            check_integer(name, getattr(self, name), 1, 2**31 - 1)
        for name in ("max_waiting", "max_chunk_tokens", "max_prompt_tokens"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1, 2**31 - 1)
        for name in ("headroom_blocks", "extra_probes", "max_overtakes", "batch_wait_timeout_iters"):
            check_integer(name, getattr(self, name), 0, 2**20)
        check_integer("context_starvation_iterations", self.context_starvation_iterations, 1, 2**31 - 1)
        for name in ("headroom_share", "batch_wait_max_tokens_ratio"):
            check_real(name, getattr(self, name), 0.0, 1.0)
        check_real("batch_wait_timeout_ms", self.batch_wait_timeout_ms, 0.0, 1e9)
        for name, legal in _CHOICES.items():
            if getattr(self, name) not in legal:
                raise ConfigError(f"{name}={shown(getattr(self, name))} must be one of {list(legal)}", field=name)
        check_bool("share_prefixes", self.share_prefixes)
        if self.max_num_tokens < self.max_batch_size:
            raise ConfigError(
                f"max_num_tokens={self.max_num_tokens} must be at least max_batch_size={self.max_batch_size}: "
                "every active sequence may decode one token in a step",
                field="max_num_tokens",
                value=self.max_num_tokens,
            )
