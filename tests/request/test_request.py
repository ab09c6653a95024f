import math

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.request import Request, check_vocabulary, token_array

BAD_FIELDS = [
    ("request_id", ""),
    ("request_id", 7),
    ("max_tokens", 0),
    ("max_tokens", True),
    ("max_tokens", 2.0),
    ("min_tokens", 17),
    ("min_tokens", -1),
    ("priority", 1.5),
    ("arrival_s", math.nan),
    ("arrival_s", -1.0),
    ("ignore_eos", 1),
    ("prompt_logprobs", None),
    ("run_to_capacity", "yes"),
    ("lora_id", 3),
    ("salt", ""),
    ("access", "write"),
    ("stop", ["a"]),
    ("stop", ("",)),
    ("stop", (b"x",)),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", (True,)),
    ("stop_token_ids", tuple(range(65))),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_illegal_field_is_refused_by_name(field: str, value: object) -> None:
    fields: dict[str, object] = {"request_id": "r", "prompt": token_array([1, 2]), field: value}

    with pytest.raises(ConfigError, match=f"^{field}"):
        Request(**fields)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    "prompt",
    [[], [[1, 2]], ["a"], [1.5], [1, -1], [2**31], [2**70], [None], [[1], [2, 3]], [True], 5, "text"],
)
def test_what_is_no_list_of_token_ids_is_refused(prompt: object) -> None:
    with pytest.raises(ConfigError, match=r"^prompt"):
        token_array(prompt)  # type: ignore[arg-type]  # the point of the test


def test_token_array_is_a_read_only_copy() -> None:
    given = np.array([1, 2, 3], dtype=np.int64)

    tokens = token_array(given)
    given[0] = 9

    assert tokens.tolist() == [1, 2, 3]
    assert tokens.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 5


def test_raw_lists_are_no_prompt() -> None:
    with pytest.raises(ConfigError, match="prompt must be a one-dimensional int32 array"):
        Request(request_id="r", prompt=[1, 2])  # type: ignore[arg-type]  # the point of the test


def test_id_outside_the_vocabulary_is_named_with_its_place() -> None:
    check_vocabulary(token_array([0, 31]), 32)

    with pytest.raises(ConfigError, match=r"prompt\[1\]=32 must be in \[0, 31\]"):
        check_vocabulary(token_array([3, 32]), 32)
