import numpy as np
import pytest

from tests.routing.loads import int64
from tidegate.base import ConfigError
from tidegate.routing import RankLoads, RoutingConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "round_robin"),
        ("policy", ["least_tokens"]),
        ("new_conv_placement", "conversation"),
        ("fair_share_multiplier", 0.5),
        ("load_balance_weight", -1),
        ("load_balance_weight", float("nan")),
        ("match_rate_threshold", 1.5),
        ("max_sessions", 0),
        ("max_moves", True),
        ("move_margin_tokens", 0),
    ],
)
def test_illegal_setting_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{field}=.* must be"):
        RoutingConfig(**{field: value})  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("prefill_tokens", int64([1]), "one entry for each rank"),
        ("max_requests", [1, 1], "must be an int64 array"),
        ("num_retiring", np.zeros(2, dtype=np.int32), "must be an int64 array"),
        ("num_live", int64([[1, 1]]), "must be an int64 array"),
        ("decode_tokens", int64([3, -1]), r"decode_tokens\[1\]=-1 must be at least 0"),
    ],
)
def test_illegal_loads_are_refused_by_name(field: str, value: object, message: str) -> None:
    names = ("num_live", "num_retiring", "prefill_tokens", "decode_tokens", "max_requests")
    fields: dict[str, object] = {name: int64([1, 1]) for name in names}

    with pytest.raises(ConfigError, match=message) as caught:
        RankLoads(**{**fields, field: value})  # type: ignore[arg-type]  # the point of the test

    assert caught.value.evidence["field"] == field


def test_no_rank_at_all_is_refused() -> None:
    none = int64([])

    with pytest.raises(ConfigError, match="at least one"):
        RankLoads(num_live=none, num_retiring=none, prefill_tokens=none, decode_tokens=none, max_requests=none)
