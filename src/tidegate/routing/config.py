"""Settings of routing, under the names users of TensorRT-LLM know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tidegate.base import ConfigError, check_integer, check_real, shown

RoutingPolicyName = Literal["least_tokens", "prefix_affinity", "conversation"]
_POLICIES = ("least_tokens", "prefix_affinity", "conversation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """Which rank serves a request. No rank takes more than ``fair_share_multiplier`` fair shares of requests.

    ``prefix_affinity`` weighs what a rank holds of a prompt against its load, times ``load_balance_weight``, for
    prompts of which some rank holds more than ``match_rate_threshold``. ``conversation`` keeps the last
    ``max_sessions`` conversations where their first turn went.
    """

    policy: RoutingPolicyName = "least_tokens"
    load_balance_weight: float = 1.0
    match_rate_threshold: float = 0.1
    fair_share_multiplier: float = 2.0
    max_sessions: int = 65536

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise ConfigError(f"routing.policy={shown(self.policy)} must be one of {list(_POLICIES)}", field="policy")
        check_real("load_balance_weight", self.load_balance_weight, 0.0, 1e6)
        check_real("match_rate_threshold", self.match_rate_threshold, 0.0, 1.0)
        check_real("fair_share_multiplier", self.fair_share_multiplier, 1.0, 1e6)
        check_integer("max_sessions", self.max_sessions, 1, 2**31 - 1)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> RoutingConfig:
        """Read a mapping; ``ConfigError`` names what is unknown in it."""
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"routing={shown(mapping)} must be a mapping", field="routing")
        legal = [field.name for field in fields(cls)]
        for name, value in mapping.items():
            if name not in legal:
                raise ConfigError(f"routing.{name}={shown(value)} is unknown; legal are {legal}", field=str(name))
        return cls(**mapping)
