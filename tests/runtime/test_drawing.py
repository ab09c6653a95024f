import numpy as np
import pytest

from tidegate.base import ConfigError, EngineError, Int64Array
from tidegate.request import Milestones, Request, RunningSequences, SamplingParams, SequenceStart, token_array
from tidegate.runtime import GreedyDrawer

GREEDY = SamplingParams(temperature=0.0)


def running(*, min_tokens: int = 0, stops: tuple[int, ...] = ()) -> tuple[RunningSequences, Int64Array]:
    sequences = RunningSequences(2, 8)
    for row in range(2):
        request = Request(request_id=f"r{row}", prompt=token_array([1]), max_tokens=4, min_tokens=min_tokens * row)
        sequences.enter(
            row,
            SequenceStart(
                request=request,
                order=row,
                tokens=request.prompt,
                max_length=5,
                stop_ids=stops,
                milestones=Milestones(),
            ),
            now=0.0,
        )
    return sequences, np.arange(2, dtype=np.int64)


def test_likeliest_token_is_taken_per_row() -> None:
    sequences, rows = running()
    draw = GreedyDrawer().prepare(rows, sequences)

    assert draw([[0.0, 3.0, 1.0], [2.0, -1.0, 1.5]]).tokens.tolist() == [1, 0]


def test_stop_token_is_not_drawn_before_the_minimum() -> None:
    sequences, rows = running(min_tokens=2, stops=(1,))
    logits = np.array([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]])

    assert GreedyDrawer().prepare(rows, sequences)(logits).tokens.tolist() == [1, 2]
    assert logits[1, 1] == 3.0

    sequences.append(rows, np.array([1, 2]), now=0.0)
    assert GreedyDrawer().prepare(rows, sequences)(logits).tokens.tolist() == [1, 1]


def test_logits_without_a_finite_largest_are_an_engine_error() -> None:
    sequences, rows = running()

    with pytest.raises(EngineError, match=r"rows \[1\]"):
        GreedyDrawer().prepare(rows, sequences)([[0.0, 1.0], [np.nan, 1.0]])


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.0, presence_penalty=1.0),
        SamplingParams(temperature=0, logprobs=1),
    ],
)
def test_what_needs_the_full_sampler_is_refused(params: SamplingParams) -> None:
    with pytest.raises(ConfigError, match="temperature=0"):
        GreedyDrawer().check(Request(request_id="r", prompt=token_array([1]), sampling=params))
    GreedyDrawer().check(Request(request_id="r", prompt=token_array([1]), sampling=GREEDY))
