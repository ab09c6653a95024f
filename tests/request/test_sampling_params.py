import math

import pytest

from tidegate.base import ConfigError
from tidegate.request import SamplingParams

BAD = [
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", -0.1),
    ("temperature", True),
    ("temperature", "1"),
    ("temperature", 1e-40),
    ("repetition_penalty", 1e-40),
    ("top_k", -1),
    ("top_k", 1.0),
    ("top_k", True),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.01),
    ("min_p", 1.5),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", -math.inf),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("seed", -1),
    ("seed", 2**63),
    ("seed", False),
    ("logprobs", 65),
    ("logprobs", -1),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_illegal_value_is_refused_with_its_name_and_range(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as refusal:
        SamplingParams(**{field: value})  # type: ignore[arg-type]  # the point of the test

    assert f"{field}={value!r} must be" in str(refusal.value)
    assert refusal.value.evidence["field"] == field


def test_borders_are_legal() -> None:
    params = SamplingParams(
        temperature=0, top_k=0, top_p=1, min_p=0, presence_penalty=-2, frequency_penalty=2.0, seed=0, logprobs=0
    )

    assert params.is_greedy
    assert params.has_penalties


def test_defaults_change_nothing() -> None:
    params = SamplingParams()

    assert not params.has_penalties
    assert not params.is_greedy


def test_a_value_too_long_to_be_written_is_refused_all_the_same() -> None:
    with pytest.raises(ConfigError, match="temperature=1000"):
        SamplingParams(temperature=10**400)
    with pytest.raises(ConfigError, match="top_k=<int> must be"):
        SamplingParams(top_k=10**5000)
    with pytest.raises(ConfigError) as refusal:
        SamplingParams(top_k="x" * 10**6)  # type: ignore[arg-type]  # the point of the test

    assert len(str(refusal.value)) < 300
