"""Log-probabilities of a prompt's own tokens: each is scored by the logits of the position before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import Int64Array
from tidegate.request import RunningSequences, TokenLogprob
from tidegate.runtime.drawing import DrawnLogprobs
from tidegate.scheduling import Step


@dataclass(frozen=True, slots=True, eq=False)
class PromptSpans:
    """What a step scores: ``counts[i]`` tokens of a prompt, the first at position ``firsts[i]``.

    ``targets`` are all these tokens, ``sources`` the flat places in the step of the logits that score them, and
    ``wanted`` how many likeliest tokens each asks for besides.
    """

    request_ids: tuple[str, ...]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    targets: Int64Array
    sources: Int64Array
    wanted: Int64Array


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Some of a prompt's log-probabilities, from the token at position ``first`` on."""

    request_id: str
    first: int
    logprobs: tuple[TokenLogprob, ...]


def prompt_spans(step: Step, sequences: RunningSequences) -> PromptSpans | None:
    """Return what a step scores; None, the usual case, when no prompt in it asks for that."""
    asks = sequences.scores_prompt[step.rows] & step.is_computed
    if not np.count_nonzero(asks):
        return None
    # The last position of a prompt scores the first output token, which is drawn.
    ends = np.minimum(step.ends, sequences.num_prompt[step.rows] - 1)
    places = (asks & (step.starts < ends)).nonzero()[0].tolist()
    if not places:
        return None
    begins = np.cumsum(np.where(step.is_computed, step.ends - step.starts, 0))
    targets, sources, wanted = [], [], []
    for place in places:
        row, start, end = int(step.rows[place]), int(step.starts[place]), int(ends[place])
        flat = int(begins[place] - (step.ends[place] - step.starts[place]))
        targets.append(sequences.tokens[row, start + 1 : end + 1].astype(np.int64))
        sources.append(np.arange(flat, flat + end - start))
        wanted.append(np.full(end - start, sequences.request(row).sampling.logprobs or 0))
    return PromptSpans(
        request_ids=tuple(sequences.request(int(step.rows[place])).request_id for place in places),
        firsts=tuple(int(step.starts[place]) + 1 for place in places),
        counts=tuple(len(part) for part in targets),
        targets=np.concatenate(targets),
        sources=np.concatenate(sources),
        wanted=np.concatenate(wanted),
    )


def prompt_logprobs(spans: PromptSpans, found: DrawnLogprobs) -> tuple[PromptLogprobs, ...]:
    """Sort what was scored by request."""
    scored, at = [], 0
    for request_id, first, count in zip(spans.request_ids, spans.firsts, spans.counts, strict=True):
        places = range(at, at + count)
        scored.append(
            PromptLogprobs(request_id, first, tuple(found.of(place, int(spans.targets[place])) for place in places))
        )
        at += count
    return tuple(scored)
