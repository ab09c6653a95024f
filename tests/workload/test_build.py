import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.workload import Workload, build_workload


def lengths(spec: object, count: int = 4000, seed: int = 0) -> list[int]:
    made = build_workload({"requests": count, "output": spec, "input": 1}, seed=seed)
    return [request.num_output_tokens for request in made.requests]


def fingerprint(workload: Workload) -> list[tuple[object, ...]]:
    return [
        (r.request_id, r.prompt.tokens().tolist(), r.num_output_tokens, r.arrival_s, r.after, r.think_s)
        for r in workload.requests
    ]


@pytest.mark.parametrize(
    ("spec", "mean", "std"),
    [
        (7, 7, 0),
        ({"kind": "fixed", "value": 9}, 9, 0),
        ({"kind": "uniform", "low": 10, "high": 30}, 20, 6.06),
        ({"kind": "normal", "mean": 200, "std": 20}, 200, 20),
        ({"kind": "lognormal", "mean": 300, "cv": 0.5}, 300, 150),
        ({"kind": "gamma", "mean": 3653, "cv": 0.5}, 3653, 1826),
        ({"kind": "table", "values": [10, 20], "weights": [3, 1]}, 12.5, 4.33),
        ({"kind": "table", "values": [10, 20]}, 15, 5),
    ],
)
def test_lengths_have_the_mean_and_spread_that_were_asked_for(spec: object, mean: float, std: float) -> None:
    drawn = np.array(lengths(spec))
    assert drawn.mean() == pytest.approx(mean, rel=0.05)
    assert drawn.std() == pytest.approx(std, rel=0.08, abs=1e-9)


def test_lengths_stay_within_bounds() -> None:
    drawn = lengths({"kind": "gamma", "mean": 100, "cv": 2.0, "low": 50, "high": 120})
    assert (min(drawn), max(drawn)) == (50, 120)


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        ({"kind": "poisson", "rate": 5.0}, 1.0),
        ({"kind": "gamma", "rate": 5.0, "cv": 2.0}, 2.0),
        ({"kind": "uniform", "rate": 5.0}, 0.0),
        ({"kind": "bursts", "rate": 5.0, "size": 10}, 19**0.5),
    ],
)
def test_arrivals_have_the_rate_and_burstiness_that_were_asked_for(arrivals: object, cv: float) -> None:
    made = build_workload({"requests": 8000, "arrivals": arrivals, "input": 1, "output": 1}, seed=3)
    gaps = np.diff([0.0, *(request.arrival_s for request in made.requests)])
    assert gaps.min() >= 0.0
    assert gaps.mean() == pytest.approx(0.2, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=1e-9)


def test_closed_load_comes_at_once_and_says_how_many_run() -> None:
    made = build_workload({"requests": 3, "arrivals": {"kind": "closed", "concurrency": 2}}, seed=0)
    assert made.concurrency == 2
    assert [request.arrival_s for request in made.requests] == [0.0, 0.0, 0.0]


def test_equal_seeds_give_equal_workloads_and_others_do_not() -> None:
    spec = {
        "requests": 5,
        "arrivals": {"kind": "poisson", "rate": 1.0},
        "input": {"kind": "uniform", "low": 1, "high": 50},
        "prefixes": {"count": 2, "length": 8},
        "sessions": {"turns": {"kind": "uniform", "low": 1, "high": 3}, "think_s": 2.0},
    }
    assert fingerprint(build_workload(spec, seed=1)) == fingerprint(build_workload(spec, seed=1))
    assert fingerprint(build_workload(spec, seed=1)) != fingerprint(build_workload(spec, seed=2))


def test_prompts_share_the_prefix_that_they_took() -> None:
    made = build_workload(
        {"requests": 400, "input": 4, "prefixes": {"count": 5, "length": 12, "zipf": 1.0, "declare": True}}, seed=0
    )
    heads: dict[tuple[int, ...], int] = {}
    for request in made.requests:
        tokens = request.prompt.tokens()
        assert (len(tokens), request.declared) == (16, (12,))
        head = tuple(tokens[:12].tolist())
        heads[head] = heads.get(head, 0) + 1
    assert len(heads) == 5
    # The first of five texts has weight 1 / (1 + 1/2 + 1/3 + 1/4 + 1/5) = 0.438.
    assert max(heads.values()) / 400 == pytest.approx(0.438, abs=0.08)
    assert len({tuple(request.prompt.tokens()[12:].tolist()) for request in made.requests}) == 400


def test_turns_repeat_all_that_was_said() -> None:
    from tidegate.workload import content_tokens

    made = build_workload({"requests": 2, "input": 5, "output": 3, "sessions": {"turns": 3, "think_s": 1.0}}, seed=0)
    assert [r.request_id for r in made.requests] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    for before, turn in zip(made.requests, made.requests[1:], strict=False):
        if turn.after is None:
            continue
        assert (turn.after, turn.conversation_id) == (before.request_id, before.conversation_id)
        answer = content_tokens(np.full(3, before.output_key), np.arange(3))
        said = [*before.prompt.tokens().tolist(), *answer.tolist()]
        assert turn.prompt.tokens()[: len(said)].tolist() == said
        assert turn.prompt.num_tokens == len(said) + 5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"requests": 0}, r"workload\.requests=0 must be"),
        ({"speed": 1}, r"workload\.speed=1 is unknown; legal are \['arrivals', 'input'"),
        ({"arrivals": {"kind": "poisson"}}, r"workload\.arrivals\.rate is missing"),
        ({"arrivals": {"kind": "poisson", "rate": 0}}, r"workload\.arrivals\.rate=0"),
        ({"arrivals": {"kind": "poisson", "rate": float("nan")}}, r"workload\.arrivals\.rate=nan"),
        ({"arrivals": "sometimes"}, r"workload\.arrivals\.kind='sometimes' must be one of \['at_once'"),
        ({"input": {"kind": "fixed", "value": True}}, r"workload\.input\.value=True"),
        ({"input": "long"}, r"workload\.input='long' must be a mapping"),
        ({"input": {"kind": "uniform", "low": 5, "high": 4}}, r"workload\.input\.high=4"),
        ({"output": {"kind": "table", "values": []}}, r"workload\.output\.values=\[\] must be a list"),
        ({"output": {"kind": "table", "values": [1], "weights": [0]}}, r"weights must not all be 0"),
        ({"output": {"kind": "table", "values": [1, 2], "weights": [1]}}, r"must be a list of 2 weights"),
        ({"prefixes": {"count": 2, "size": 3}}, r"workload\.prefixes\.size=3 is unknown"),
        ({"sessions": {"turns": 2, "think_s": -1}}, r"workload\.sessions\.think_s=-1"),
    ],
)
def test_what_makes_no_sense_is_named(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_workload(spec, seed=0)
