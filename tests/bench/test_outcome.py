import json

import pytest

from tidegate.bench import Outcome, Percentiles, Summary
from tidegate.request import FinishReason


def outcome(arrival: float, first: float | None, finished: float, num_tokens: int = 5) -> Outcome:
    return Outcome(
        request_id=f"r{arrival}",
        num_prompt_tokens=10,
        num_cached_tokens=4,
        num_tokens=num_tokens,
        arrival_s=arrival,
        first_token_s=first,
        finished_s=finished,
        finish_reason=FinishReason.LENGTH if num_tokens else FinishReason.CAPACITY,
    )


def test_percentiles_leave_out_what_is_missing() -> None:
    found = Percentiles.of([None, *(float(i) for i in range(1, 101))])

    assert found is not None
    assert (found.mean, found.p50, found.max) == (50.5, 50.5, 100.0)
    assert found.p90 == pytest.approx(90.1)


def test_percentiles_of_nothing_are_none() -> None:
    assert Percentiles.of([None]) is None


def test_summary_counts_tokens_and_rates() -> None:
    summary = Summary.of([outcome(1.0, 2.0, 4.0), outcome(2.0, 2.5, 6.0)])

    assert (summary.num_requests, summary.duration_s) == (2, 5.0)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.output_tokens) == (20, 8, 10)
    assert (summary.output_tokens_per_s, summary.total_tokens_per_s, summary.requests_per_s) == (2.0, 6.0, 0.4)
    assert summary.cache_hit_ratio == 0.4


def test_requests_without_tokens_have_no_times() -> None:
    summary = Summary.of([outcome(0.0, None, 1.0, num_tokens=0)])

    assert (summary.ttft_s, summary.tpot_s) == (None, None)
    assert summary.finish_reasons == {"capacity": 1}


def test_one_token_has_no_time_per_output_token() -> None:
    assert outcome(0.0, 1.0, 1.0, num_tokens=1).tpot_s is None


def test_summary_of_nothing_divides_by_nothing() -> None:
    summary = Summary.of([])

    assert (summary.output_tokens_per_s, summary.cache_hit_ratio) == (0.0, 0.0)


def test_record_is_json() -> None:
    record = json.loads(json.dumps(Summary.of([outcome(1.0, 2.0, 4.0)]).record()))

    assert record["ttft_s"]["p50"] == 1.0
    assert record["output_tokens_per_s"] == pytest.approx(5 / 3)
