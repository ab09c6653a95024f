import json
from pathlib import Path

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.sim import CostSpec, SimSpec, simulate

BENCH = Path(__file__).parents[3] / "shared" / "data" / "llmservingsim"


def test_equal_seeds_give_equal_bytes() -> None:
    mapping = {
        "model": "gpt-oss-20b",
        "num_ranks": 2,
        "cost": {"hardware": "h200"},
        "workload": {
            "requests": 12,
            "arrivals": {"kind": "poisson", "rate": 50.0},
            "input": {"kind": "uniform", "low": 10, "high": 300},
            "output": 8,
        },
        "seed": 3,
    }
    first, second = (simulate(SimSpec.from_mapping(mapping)) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert list(first.request_rows()) == list(second.request_rows())
    assert first.to_json() != simulate(SimSpec.from_mapping({**mapping, "seed": 4})).to_json()
    assert (first.summary()["requests"], first.summary()["unfinished"]) == (12, 0)
    assert any(note.startswith("max_seq_len=") for note in first.notes)


def test_linear_time_is_steps_and_tokens() -> None:
    spec = SimSpec(
        model="llama-3.1-8b",
        cost=CostSpec(kind="linear", fixed_ms=10.0, per_token_us=1000.0),
        workload={"requests": 1, "input": 5, "output": 4},
        settings={"device_bytes": 1 << 30},
    )
    # One step of 5 tokens and three of one.
    assert simulate(spec).makespan_s == pytest.approx(4 * 0.01 + 8 * 0.001)


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"spec\.speed=1 is unknown"):
        SimSpec.from_mapping({"speed": 1})
    with pytest.raises(ConfigError, match="max_tokens_ever=3: no such setting"):
        simulate(SimSpec(settings={"max_tokens_ever": 3}, workload={"requests": 1}))


@pytest.mark.parametrize(("card", "seats", "blocks"), [("RTX4090", 256, 2588), ("RTXPRO6000", 128, 30_000)])
def test_measured_runs_are_predicted(card: str, seats: int, blocks: int) -> None:
    """TPOT and end-to-end within 5 %, time to the first token within 10 %, with one host overhead for both."""
    path = BENCH / "bench" / card / "Llama-3.1-8B" / "requests.jsonl"
    if not path.is_file():
        pytest.skip("the measured runs are not here")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    queued, first, last = (
        np.array([row[f"{name}_ts"] for row in rows]) for name in ("queued", "first_token", "last_token")
    )
    after = np.maximum(np.array([row["output_toks"] for row in rows]) - 1, 1)
    spec = SimSpec(
        model="llama-3.1-8b",
        cost=CostSpec(
            kind="tables",
            hardware=card.lower(),
            tables=str(BENCH / "profile" / card / "meta-llama" / "Llama-3.1-8B" / "bf16" / "tp1"),
        ),
        workload={
            "trace": str(BENCH / "workloads" / "sharegpt-llama-3.1-8b-300-sps10.jsonl"),
            "format": "llmservingsim",
        },
        settings={
            "tokens_per_block": 16,
            "max_num_tokens": 2048,
            "max_batch_size": seats,
            "max_seq_len": 32_768,
            "pool_slots": (blocks,),
            "headroom_blocks": 0,
            "max_overtakes": 0,
            "max_util_for_resume": 1.0,
        },
    )
    summary = simulate(spec).summary()
    assert summary["tpot_s"]["mean"] == pytest.approx(((last - first) / after).mean(), rel=0.05)
    assert summary["e2e_s"]["mean"] == pytest.approx((last - queued).mean(), rel=0.05)
    assert summary["ttft_s"]["mean"] == pytest.approx((first - queued).mean(), rel=0.10)
