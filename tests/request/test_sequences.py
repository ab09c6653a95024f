import numpy as np
import pytest

from tidegate.base import Int64Array, InternalError
from tidegate.request import (
    FinishReason,
    Milestones,
    Phase,
    Request,
    RunningSequences,
    SequenceStart,
    token_array,
)


def rows(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def start(prompt: list[int], *, stops: tuple[int, ...] = (), min_tokens: int = 0, known: int = 0) -> SequenceStart:
    request = Request(request_id=f"r{prompt[0]}", prompt=token_array(prompt), max_tokens=8, min_tokens=min_tokens)
    return SequenceStart(
        request=request,
        order=0,
        tokens=token_array(prompt + [7] * known),
        max_length=request.max_length,
        stop_ids=stops,
        milestones=Milestones(),
    )


def test_tokens_and_times_of_a_short_life() -> None:
    sequences = RunningSequences(4, 16)
    sequences.enter(2, start([5, 6, 9]), now=1.0)
    sequences.append(rows(2), rows(11), now=2.0)
    sequences.append(rows(2), rows(12), now=3.5)

    output = sequences.finish(2, FinishReason.LENGTH, now=3.5)

    assert output.tokens.tolist() == [11, 12]
    assert output.timing.first_token_s == 2.0
    assert output.timing.ttft_s == 2.0
    assert output.tpot_s == 1.5
    assert sequences.active().tolist() == []
    assert sequences.num_used == 1


def test_only_own_stop_tokens_count_and_only_past_the_minimum() -> None:
    sequences = RunningSequences(3, 16)
    sequences.enter(0, start([1], stops=(9,)), now=0.0)
    sequences.enter(1, start([2], stops=(8,)), now=0.0)
    sequences.enter(2, start([3], stops=(9,), min_tokens=2), now=0.0)

    sequences.append(rows(0, 1, 2), rows(9, 9, 9), now=0.0)
    assert sequences.is_at_stop(rows(0, 1, 2)).tolist() == [True, False, False]

    sequences.append(rows(2), rows(9), now=0.0)
    assert sequences.is_at_stop(rows(2)).tolist() == [True]


def test_many_stop_tokens_widen_the_table() -> None:
    sequences = RunningSequences(2, 16)
    sequences.enter(0, start([1], stops=(3,)), now=0.0)
    sequences.enter(1, start([2], stops=tuple(range(20, 40))), now=0.0)

    sequences.append(rows(0, 1), rows(3, 39), now=0.0)

    assert sequences.is_at_stop(rows(0, 1)).tolist() == [True, True]


def test_row_reused_keeps_nothing_of_its_predecessor() -> None:
    sequences = RunningSequences(1, 16)
    sequences.enter(0, start([1, 2], stops=(3, 4, 5)), now=0.0)
    sequences.append(rows(0), rows(3), now=1.0)
    sequences.finish(0, FinishReason.STOP, now=1.0)
    sequences.release(rows(0))

    sequences.enter(0, start([4]), now=5.0)
    sequences.append(rows(0), rows(4), now=6.0)
    output = sequences.finish(0, FinishReason.LENGTH, now=6.0)

    assert not sequences.is_at_stop(rows(0))[0]
    assert output.tokens.tolist() == [4]
    assert output.timing.first_token_s == 6.0


def test_taken_row_is_not_entered_and_ended_row_takes_no_token() -> None:
    sequences = RunningSequences(1, 16)
    sequences.enter(0, start([1]), now=0.0)

    with pytest.raises(InternalError, match="taken by 'r1'"):
        sequences.enter(0, start([2]), now=0.0)
    sequences.finish(0, FinishReason.ABORTED, now=0.0)
    with pytest.raises(InternalError, match="from FINISHED to DECODE"):
        sequences.append(rows(0), rows(1), now=0.0)


def test_sequence_that_comes_back_keeps_prompt_and_output_apart() -> None:
    sequences = RunningSequences(1, 16)
    sequences.enter(0, start([1, 2], known=3), now=0.0)

    assert sequences.phase[0] == Phase.PREFILL
    assert sequences.target[0] == 5
    assert sequences.finish(0, FinishReason.LENGTH, now=0.0).tokens.tolist() == [7, 7, 7]
