"""Settings of routing, under the names that TensorRT-LLM users know where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.base import ConfigError, check_integer, check_real, shown

RoutingPolicy = Literal["least_tokens", "prefix_affinity", "conversation"]
NewConversationPlacement = Literal["least_tokens", "prefix_affinity"]
_POLICIES = ("least_tokens", "prefix_affinity", "conversation")
_PLACEMENTS = ("least_tokens", "prefix_affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """``fair_share_multiplier`` times its share of all requests is what a rank takes before others had theirs.

    At 1 ranks get equally many requests whatever these cost; the larger it is, the more only their tokens count.
    ``prefix_affinity`` adds ``load_balance_weight`` times a rank's load to what a request would compute there, and
    looks at cached prefixes only when the longest is more than ``match_rate_threshold`` of the prompt.
    ``conversation`` remembers the ranks of the last ``max_sessions`` conversations and places a new one by
    ``new_conv_placement``. ``moves`` proposes at most ``max_moves`` at once, each of which must leave the receiving
    rank at least ``move_margin_tokens`` below what the giving one had.
    """

    policy: RoutingPolicy = "least_tokens"
    fair_share_multiplier: float = 2.0
    load_balance_weight: float = 1.0
    match_rate_threshold: float = 0.1
    max_sessions: int = 65536
    new_conv_placement: NewConversationPlacement = "least_tokens"
    max_moves: int = 8
    move_margin_tokens: int = 1024

    def __post_init__(self) -> None:
        for name, legal in (("policy", _POLICIES), ("new_conv_placement", _PLACEMENTS)):
            value = getattr(self, name)
            if value not in legal:
                raise ConfigError(f"{name}={shown(value)} must be one of {list(legal)}", field=name, value=value)
        check_real("fair_share_multiplier", self.fair_share_multiplier, 1.0, 1e6)
        check_real("load_balance_weight", self.load_balance_weight, 0.0, 1e6)
        check_real("match_rate_threshold", self.match_rate_threshold, 0.0, 1.0)
        check_integer("max_sessions", self.max_sessions, 1, 2**31 - 1)
        check_integer("max_moves", self.max_moves, 0, 2**20)
        check_integer("move_margin_tokens", self.move_margin_tokens, 1, 2**31 - 1)
