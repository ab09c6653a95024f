import math

import pytest

from tidegate.base import ConfigError
from tidegate.scheduling import SchedulerConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_num_tokens", 0),
        ("max_num_tokens", True),
        ("max_batch_size", 1.0),
        ("max_partial_prefills", 0),
        ("max_waiting", 0),
        ("policy", "lifo"),
        ("headroom_blocks", -1),
        ("headroom_share", math.nan),
        ("headroom_share", 1.1),
        ("share_prefixes", 1),
        ("extra_probes", -1),
    ],
)
def test_illegal_setting_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field}={value!r}"):
        SchedulerConfig(**{field: value})  # type: ignore[arg-type]  # the point of the test


def test_token_budget_must_let_every_sequence_decode() -> None:
    SchedulerConfig(max_num_tokens=8, max_batch_size=8)

    with pytest.raises(ConfigError, match="max_num_tokens=7 must be at least max_batch_size=8"):
        SchedulerConfig(max_num_tokens=7, max_batch_size=8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity_policy", "static_batch"),
        ("max_overtakes", -1),
        ("max_prompt_tokens", 0),
        ("context_starvation_iterations", 0),
        ("batch_wait_timeout_iters", -1),
        ("batch_wait_max_tokens_ratio", 1.5),
        ("batch_wait_timeout_ms", -0.5),
    ],
)
def test_illegal_waiting_setting_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field}={value!r}"):
        SchedulerConfig(**{field: value})  # type: ignore[arg-type]  # the point of the test
