import math
from typing import Any

import pytest

from tidegate.base import ConfigError
from tidegate.scheduling import AttentionDPConfig, Balancer, CostAwareWait, FixedWait, NoBalance, balance_of


def test_defaults_are_those_users_know() -> None:
    config = AttentionDPConfig()

    assert (config.enable_balance, config.timeout_iters, config.batching_wait_iters) == (False, 50, 10)


@pytest.mark.parametrize("nested", [False, True])
def test_file_content_is_read_nested_or_bare(nested: bool) -> None:
    content = {"enable_balance": True, "timeout_iters": 7, "batching_wait_iters": 3}

    config = AttentionDPConfig.from_mapping({"model": "x", "attention_dp_config": content} if nested else content)

    assert config == AttentionDPConfig(enable_balance=True, timeout_iters=7, batching_wait_iters=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enable_balance", 1),
        ("replay", "no"),
        ("timeout_iters", -1),
        ("batching_wait_iters", 1.5),
        ("policy", "best"),
        ("policy", ["fixed"]),
        ("latency_weight", math.nan),
        ("latency_weight", 2),
        ("max_hold_iters", -1),
        ("max_hold_iters", True),
        ("timeout_iter", 5),
    ],
)
def test_illegal_setting_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{field}=.*(must be|legal are)") as refusal:
        AttentionDPConfig.from_mapping({field: value})

    assert refusal.value.evidence["field"] == field


@pytest.mark.parametrize("content", [None, [], "balance", {"attention_dp_config": None}])
def test_what_is_no_mapping_is_refused(content: Any) -> None:
    with pytest.raises(ConfigError, match=r"attention_dp_config=.* must be a mapping"):
        AttentionDPConfig.from_mapping(content)


def test_settings_beside_the_nested_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"timeout_iters=5 must be inside attention_dp_config"):
        AttentionDPConfig.from_mapping({"attention_dp_config": {}, "timeout_iters": 5})


def test_only_the_fixed_policy_replays() -> None:
    with pytest.raises(ConfigError, match="replay=True"):
        AttentionDPConfig(policy="cost_aware", replay=True)


@pytest.mark.parametrize(
    ("config", "balancer"),
    [
        (AttentionDPConfig(), Balancer(NoBalance(), 60)),
        (AttentionDPConfig(enable_balance=True), Balancer(FixedWait(8, 50, 10), 60)),
        (
            AttentionDPConfig(enable_balance=True, timeout_iters=3, batching_wait_iters=2, replay=True),
            Balancer(FixedWait(8, 3, 2, replay=True), 5),
        ),
        (
            AttentionDPConfig(enable_balance=True, policy="cost_aware", latency_weight=0.5, max_hold_iters=9),
            Balancer(CostAwareWait(0.5, 9), 9),
        ),
    ],
)
def test_configuration_builds_its_policy(config: AttentionDPConfig, balancer: Balancer[Any]) -> None:
    built = balance_of(config, max_batch_size=8)

    assert repr(built.policy) == repr(balancer.policy) or isinstance(built.policy, NoBalance)
    assert (type(built.policy), built.max_hold_iters) == (type(balancer.policy), balancer.max_hold_iters)
