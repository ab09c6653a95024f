"""Settings of attention-DP balance, under the names users of TensorRT-LLM know, and what they build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tidegate.base import ConfigError, check_bool, check_integer, check_real, shown
from tidegate.scheduling.balance.balancer import Balancer
from tidegate.scheduling.balance.cost_aware import CostAwareWait
from tidegate.scheduling.balance.fixed_wait import FixedWait
from tidegate.scheduling.balance.policy import NoBalance

BalancePolicyName = Literal["fixed", "cost_aware"]
_POLICIES = ("fixed", "cost_aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionDPConfig:
    """``policy`` "fixed" is ``FixedWait`` with the two counts, "cost_aware" ``CostAwareWait`` with ``latency_weight``.

    ``replay`` makes "fixed" do as TensorRT-LLM in every detail. ``max_hold_iters`` bounds how many steps any policy may
    hold a prefill; None: ``timeout_iters + batching_wait_iters``.
    """

    enable_balance: bool = False
    timeout_iters: int = 50
    batching_wait_iters: int = 10
    policy: BalancePolicyName = "fixed"
    replay: bool = False
    latency_weight: float = 0.25
    max_hold_iters: int | None = None

    def __post_init__(self) -> None:
        for name in ("enable_balance", "replay"):
            check_bool(name, getattr(self, name))
        for name in ("timeout_iters", "batching_wait_iters"):
            check_integer(name, getattr(self, name), 0, 2**30 - 1)
        if self.max_hold_iters is not None:
            check_integer("max_hold_iters", self.max_hold_iters, 0, 2**31 - 1)
        check_real("latency_weight", self.latency_weight, 0.0, 1.0)
        if self.policy not in _POLICIES:
            raise ConfigError(f"policy={shown(self.policy)} must be one of {list(_POLICIES)}", field="policy")
        if self.replay and self.policy != "fixed":
            raise ConfigError(f"replay=True must go with policy='fixed', not {shown(self.policy)}", field="replay")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> AttentionDPConfig:
        """Read ``attention_dp_config``: its content, or a mapping that has it among other settings."""
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"attention_dp_config={shown(mapping)} must be a mapping", field="attention_dp_config")
        legal = [field.name for field in fields(cls)]
        if "attention_dp_config" in mapping:
            astray = [f"{name}={shown(mapping[name])}" for name in legal if name in mapping]
            if astray:
                raise ConfigError(f"{', '.join(astray)} must be inside attention_dp_config", field=astray[0])
            return cls.from_mapping(mapping["attention_dp_config"])
        for name, value in mapping.items():
            if name not in legal:
                raise ConfigError(
                    f"attention_dp_config.{name}={shown(value)} is unknown; legal are {legal}", field=str(name)
                )
        return cls(**mapping)

    @property
    def hold_bound(self) -> int:
        """The most steps a prefill may be held."""
        if self.max_hold_iters is None:
            return self.timeout_iters + self.batching_wait_iters
        return self.max_hold_iters


def balance_of(config: AttentionDPConfig, max_batch_size: int) -> Balancer[Any]:
    """Build the policy that a configuration asks for, within its bounds; one that never holds if it is not enabled."""
    bound = config.hold_bound
    if not config.enable_balance:
        return Balancer(NoBalance(), bound)
    if config.policy == "cost_aware":
        return Balancer(CostAwareWait(config.latency_weight, bound), bound)
    return Balancer(
        FixedWait(max_batch_size, config.timeout_iters, config.batching_wait_iters, config.replay),
        bound,
    )
