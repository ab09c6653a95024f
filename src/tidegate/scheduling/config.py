"""Settings of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.base import ConfigError, check_bool, check_integer, check_real, shown

PolicyName = Literal["fcfs", "priority"]
_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """``max_num_tokens`` per step, after reuse; ``max_batch_size`` active sequences; ``max_waiting`` None: no limit.

    ``max_chunk_tokens`` bounds one sequence's chunk; None: only the step's budget does.
    ``max_partial_prefills`` sequences may be in the middle of their prompt after a step. While anything is active, an
    admission leaves room for ``headroom_blocks`` more blocks of each active sequence, at most ``headroom_share`` of a
    pool. ``share_prefixes`` lets requests wait for an equal prefix that another is computing. A plan looks at no more
    waiting requests than it has seats, plus ``extra_probes``.
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

    def __post_init__(self) -> None:
        for name in ("max_num_tokens", "max_batch_size", "max_partial_prefills"):
            check_integer(name, getattr(self, name), 1, 2**31 - 1)
        for name in ("max_waiting", "max_chunk_tokens"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1, 2**31 - 1)
        check_integer("headroom_blocks", self.headroom_blocks, 0, 2**20)
        check_integer("extra_probes", self.extra_probes, 0, 2**20)
        check_real("headroom_share", self.headroom_share, 0.0, 1.0)
        if self.policy not in _POLICIES:
            raise ConfigError(f"policy={shown(self.policy)} must be one of {list(_POLICIES)}", field="policy")
        check_bool("share_prefixes", self.share_prefixes)
        if self.max_num_tokens < self.max_batch_size:
            raise ConfigError(
                f"max_num_tokens={self.max_num_tokens} must be at least max_batch_size={self.max_batch_size}: "
                "every active sequence may decode one token in a step",
                field="max_num_tokens",
                value=self.max_num_tokens,
            )
