import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.workload import TRACE_FORMATS, Workload, build_workload, sample_path

DATA = Path(__file__).parents[3] / "shared" / "data"


def read(path: Path, name: str, **more: Any) -> Workload:
    return build_workload({"trace": str(path), "format": name, **more}, seed=0)


def arrivals(workload: Workload) -> list[float]:
    return [request.arrival_s for request in workload.requests]


@pytest.mark.parametrize(
    ("name", "count", "inputs", "outputs"),
    [
        ("mooncake", 12, 12 * 600 + 37 * 66, 240 + 3 * 66),
        ("bailian", 12, 12 * 40 + 16 * 12 + 66, 144 + 66),
        ("llmservingsim", 10, 5 * 90 + 20 + (5 + 4 + 6 + 5 + 4), 60 + 45),
        ("azure", 12, 3600 + 41 * 66, 132 + 66),
        ("burstgpt", 11, 2400 + 17 * 66 - 268, 360 + 66 - 34),
        ("vidur", 12, 128 * 12 + 9 * 66, 192 + 66),
    ],
)
def test_samples_read_as_they_were_made(name: str, count: int, inputs: int, outputs: int) -> None:
    made = read(sample_path(name), name)
    assert len(made.requests) == count
    assert sum(r.prompt.num_tokens for r in made.requests) == inputs
    assert sum(len(r.prompt.tokens()) for r in made.requests) == inputs
    assert sum(r.num_output_tokens for r in made.requests) == outputs
    assert arrivals(made)[0] == 0.0
    assert sorted(arrivals(made)) == arrivals(made)


def test_every_format_has_a_sample() -> None:
    assert all(sample_path(name).is_file() for name in TRACE_FORMATS)


def test_equal_block_ids_are_equal_tokens() -> None:
    first, second, third, fourth = (r.prompt.tokens() for r in read(sample_path("mooncake"), "mooncake").requests[:4])
    assert np.array_equal(first[:512], second[:512])
    assert not np.array_equal(first[512:600], third[512:600])
    assert np.array_equal(second[512:637], fourth[512:637])


def test_turns_follow_each_other_only_where_sessions_are_replayed() -> None:
    timed = read(sample_path("bailian"), "bailian")
    assert all(r.after is None for r in timed.requests)
    linked = read(sample_path("bailian"), "bailian", replay="sessions", time_scale=2.0)
    assert [r.after for r in linked.requests[:4]] == [None, "0", "1", None]
    assert (linked.requests[1].think_s, linked.requests[3].arrival_s) == (3.0, 9.0)
    assert linked.requests[2].conversation_id == linked.requests[0].conversation_id


def test_limit_and_ways_of_replay() -> None:
    assert len(read(sample_path("vidur"), "vidur", limit=3).requests) == 3
    assert arrivals(read(sample_path("vidur"), "vidur", time_scale=2.0))[:3] == [0.0, 1.5, 3.0]
    closed = read(sample_path("vidur"), "vidur", replay="closed", concurrency=4)
    assert (closed.concurrency, set(arrivals(closed))) == (4, {0.0})


MOONCAKE = {"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": [1]}
BAILIAN = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}
SERVING = {"arrival_time_ns": 5, "input_toks": 2, "output_toks": 3}


@pytest.mark.parametrize(
    ("name", "good", "bad", "field"),
    [
        ("mooncake", MOONCAKE, {**MOONCAKE, "input_length": 0}, "input_length=0 must be a whole number from 1"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "input_length": True}, "input_length=True must be"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "output_length": 1e30}, "output_length=1e.30 must be"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "hash_ids": "1"}, "hash_ids='1' must be a list"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "hash_ids": [1, -2]}, "hash_ids=.* must be a list"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "timestamp": -4}, "timestamp=-4 must be a time"),
        ("mooncake", MOONCAKE, {**MOONCAKE, "timestamp": float("nan")}, "timestamp=nan must be a time"),
        ("mooncake", MOONCAKE, {"timestamp": 1}, "input_length is missing"),
        ("bailian", BAILIAN, BAILIAN, "chat_id=1 must be a number that no line before has"),
        ("llmservingsim", SERVING, {**SERVING, "input_tok_ids": [1]}, "input_tok_ids='1 ids' must be input_toks=2"),
        ("llmservingsim", SERVING, {**SERVING, "output_toks": "x"}, "output_toks='x' must be"),
    ],
)
def test_a_bad_line_of_json_is_named(
    tmp_path: Path, name: str, good: dict[str, Any], bad: dict[str, Any], field: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(bad)}\n")
    with pytest.raises(ConfigError, match=rf"trace\.jsonl:3: {field}"):
        read(path, name)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("azure", "TIMESTAMP,ContextTokens\n", "csv:1: column 'GeneratedTokens' is missing"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nlater,1,2\n", "csv:2: TIMESTAMP='later' must be a date"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01,1\n", "csv:2: 2 values must be 3"),
        (
            "azure",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02,1,1\n2023-01-01,1,1\n",
            "csv:3: TIMESTAMP='2023-01-01' must be at or after",
        ),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,-3,1\n", "csv:2: num_prefill_tokens='-3' must"),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\ninf,3,1\n", "csv:2: arrived_at='inf' must be"),
        ("burstgpt", "Timestamp,Request tokens,Response tokens\n1,2,2.5\n", "csv:2: Response tokens='2.5' must be"),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n", "the trace is empty"),
        ("vidur", "", "csv:1: column 'arrived_at' is missing"),
    ],
)
def test_a_bad_line_of_csv_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(path, name)


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(MOONCAKE).encode() + b"\n\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"t\.jsonl:2: not UTF-8"):
        read(path, "mooncake")
    path.write_text("[1]\n")
    with pytest.raises(ConfigError, match=r"t\.jsonl:1: \[1\] must be a JSON object"):
        read(path, "mooncake")
    path.write_text("{\n")
    with pytest.raises(ConfigError, match=r"t\.jsonl:1: not JSON"):
        read(path, "mooncake")
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(MOONCAKE).encode() * 50)[:-9])
    with pytest.raises(ConfigError, match=r"t\.jsonl\.gz"):
        read(packed, "mooncake")
    with pytest.raises(ConfigError, match=r"absent\.jsonl: cannot be read"):
        read(tmp_path / "absent.jsonl", "mooncake")
    with pytest.raises(ConfigError, match=r"workload\.format='orca' must be one of \['azure'"):
        read(path, "orca")


def test_mooncake_conversation_has_its_published_numbers() -> None:
    path = DATA / "mooncake" / "conversation_trace.jsonl"
    if not path.is_file():
        pytest.skip("the Mooncake trace is not here")
    made = read(path, "mooncake")
    lengths = [request.prompt.num_tokens for request in made.requests]
    assert len(lengths) == 12_031
    assert np.mean(lengths) == pytest.approx(12_035, abs=1)
    seen, hits, asked = set[int](), 0, 0
    for request in made.requests:
        keys = request.prompt.keys.tolist()
        hits += sum(key in seen for key in keys)
        asked += len(keys)
        seen |= set(keys)
    assert hits / asked == pytest.approx(0.366, abs=0.001)


def test_azure_traces_have_their_published_numbers() -> None:
    if not (DATA / "azure").is_dir():
        pytest.skip("the Azure traces are not here")
    code, conv = (read(DATA / "azure" / f"AzureLLMInferenceTrace_{name}.csv", "azure") for name in ("code", "conv"))
    assert (len(code.requests), len(conv.requests)) == (8_819, 19_366)
    assert np.mean([r.prompt.num_tokens for r in code.requests]) == pytest.approx(2_048, abs=1)
    assert np.mean([r.num_output_tokens for r in conv.requests]) == pytest.approx(211, abs=1)
