"""Prompt look-up: the longest and then the most recent earlier occurrence of a sequence's last tokens."""

import numpy as np
import pytest

from tidegate.base import ConfigError
from tidegate.request import Milestones, RunningSequences, SequenceStart
from tidegate.scheduling import NgramDrafts
from tidegate.testing.serving import make_request


def enter(sequences: RunningSequences, row: int, tokens: list[int]) -> None:
    request = make_request(f"r{row}", tokens, max_tokens=40)
    start = SequenceStart(
        request=request,
        order=0,
        tokens=request.prompt,
        max_length=len(tokens) + 40,
        stop_ids=(),
        milestones=Milestones(),
    )
    sequences.enter(row, start, now=0.0)


def sequences_of(*contexts: list[int]) -> RunningSequences:
    sequences = RunningSequences(len(contexts), 200)
    for row, context in enumerate(contexts):
        enter(sequences, row, context)
    return sequences


def drafts_of(source: NgramDrafts, sequences: RunningSequences, limit: int = 9) -> list[list[int]]:
    rows = np.arange(len(sequences.num_tokens))
    tokens, counts = source.propose(rows, sequences, np.full(len(rows), limit))
    assert tokens.dtype == np.int32
    assert ((tokens >= 0).sum(axis=1) == counts).all()
    return [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def looked_up(context: list[int], most: int, least: int, count: int) -> list[int]:
    """The definition, one place after the other."""
    for size in range(most, least - 1, -1):
        for end in range(len(context) - 1, size - 1, -1):
            if size < len(context) and context[end - size : end] == context[-size:]:
                period = len(context) - end
                return [context[end + i % period] for i in range(count)]
    return []


def test_longest_match_comes_before_the_most_recent() -> None:
    sequences = sequences_of([7, 1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3])

    assert drafts_of(NgramDrafts(3, 2, 2), sequences) == [[50, 9]]
    assert drafts_of(NgramDrafts(2, 2, 2), sequences) == [[60, 1]]


def test_a_loop_is_followed_round_and_round() -> None:
    assert drafts_of(NgramDrafts(3, 1, 5), sequences_of([4, 8, 9, 8, 9], [6, 6])) == [[8, 9, 8, 9, 8], [6] * 5]


def test_shorter_matches_than_the_least_do_not_count() -> None:
    sequences = sequences_of([1, 2, 3, 9, 3], [5], [5, 6])

    assert drafts_of(NgramDrafts(4, 2, 3), sequences) == [[], [], []]
    assert drafts_of(NgramDrafts(4, 1, 3), sequences) == [[9, 3, 9], [], []]


def test_limits_are_kept_row_by_row() -> None:
    sequences = sequences_of([1, 2] * 4, [3, 4] * 4)
    tokens, counts = NgramDrafts(2, 1, 4).propose(np.array([1, 0]), sequences, np.array([1, 6]))

    assert counts.tolist() == [1, 4]
    assert tokens.tolist() == [[3, -1, -1, -1], [1, 2, 1, 2]]


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_definition_while_sequences_grow_and_rows_change_hands(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = NgramDrafts(4, 2, 5)
    contexts = [rng.integers(0, 6, rng.integers(1, 30)).tolist() for _ in range(5)]
    sequences = sequences_of(*contexts)
    for step in range(30):
        found = drafts_of(source, sequences)
        assert found == [looked_up(context, 4, 2, 5) for context in contexts], (seed, step)
        new = rng.integers(0, 6, (5, 3))
        sequences.append(np.arange(5), new, now=0.0)
        contexts = [context + tokens for context, tokens in zip(contexts, new.tolist(), strict=True)]
        if step % 8 == 7:
            row = int(rng.integers(5))
            sequences.release(np.array([row]))
            contexts[row] = contexts[row][: 1 + step]
            enter(sequences, row, contexts[row])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((0, 1, 1), "max_ngram"), ((3, 4, 1), "min_ngram"), ((3, 0, 1), "min_ngram"), ((3, 1, 0), "num_draft_tokens")],
)
def test_illegal_numbers_are_refused(arguments: tuple[int, int, int], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        NgramDrafts(*arguments)
