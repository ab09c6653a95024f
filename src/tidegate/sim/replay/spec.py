"""What to replay: cache sizes, policies and the form of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ConfigError, check_bool, check_integer, check_tuple, shown
from tidegate.storage import check_policy, policy_names

_MOST_BLOCKS = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """``pool_blocks`` are the cache's sizes in blocks of ``block_tokens``; no ``policies``: all there are.

    So many as ``concurrency`` requests hold their pages at once: one lets go when the next would be too many. Tokens
    that a request produced are cached behind its prompt unless ``with_outputs`` is False.
    """

    pool_blocks: tuple[int, ...] = (1_000, 3_000, 10_000, 20_000, 50_000)
    policies: tuple[str, ...] = ()
    block_tokens: int = 512
    concurrency: int = 1
    with_outputs: bool = True

    def __post_init__(self) -> None:
        check_tuple("pool_blocks", self.pool_blocks, int)
        for blocks in self.pool_blocks:
            check_integer("pool_blocks", blocks, 1, _MOST_BLOCKS)
        if not self.pool_blocks or len(set(self.pool_blocks)) < len(self.pool_blocks):
            raise ConfigError(f"pool_blocks={shown(self.pool_blocks)} must be different sizes", field="pool_blocks")
        check_tuple("policies", self.policies, str)
        for policy in self.policies:
            check_policy("policies", policy)
        if len(set(self.policies)) < len(self.policies):
            raise ConfigError(f"policies={shown(self.policies)} must be different policies", field="policies")
        check_integer("block_tokens", self.block_tokens, 1, 1 << 20)
        check_integer("concurrency", self.concurrency, 1, 1 << 16)
        check_bool("with_outputs", self.with_outputs)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The policies to replay."""
        return self.policies or policy_names()
