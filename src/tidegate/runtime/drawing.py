"""From a step's logits to one token per row: what a sampler must offer, and the one that needs no torch.

Per-request parameters live in arrays by row, so that preparing a draw costs no Python per sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.base import BoolArray, ConfigError, EngineError, Int64Array, InternalError
from tidegate.request import Phase, Request, RunningSequences, TokenLogprob

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class DrawnLogprobs:
    """Log-probabilities of the drawn tokens ``[m]`` and of the likeliest ``[m, n]``; ``wanted[i]`` of them, or -1."""

    chosen: Float32Array
    top_tokens: Int64Array
    top: Float32Array
    wanted: Int64Array

    def of(self, place: int, token: int) -> TokenLogprob:
        """Return what was found for the ``place``-th token, which is ``token``."""
        number = int(self.wanted[place])
        top = zip(self.top_tokens[place, :number].tolist(), self.top[place, :number].tolist(), strict=True)
        return TokenLogprob(token, float(self.chosen[place]), tuple(top))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One token per row of logits; what tokens of prompts scored, if any were to be."""

    tokens: Int64Array
    logprobs: DrawnLogprobs | None = None
    prompts: DrawnLogprobs | None = None


Draw = Callable[[npt.ArrayLike], Drawn]


class Drawer(Protocol):
    """Draws tokens. ``prepare`` gathers everything on the caller's side; the draw itself may run in a thread."""

    def check(self, request: Request) -> None:
        """Raise ``ConfigError`` for a request whose sampling this drawer cannot do."""
        ...

    def enter(self, row: int, request: Request, order: int) -> None:
        """Note the parameters of the request that entered ``row``."""
        ...

    def prepare(self, rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None = None) -> Draw:
        """Return the draw for these rows' next tokens.

        With ``ahead`` a row may occur several times, and its token is drawn ``ahead[i]`` places further on.
        """
        ...

    def score(self, logits: npt.ArrayLike, tokens: Int64Array, wanted: Int64Array) -> DrawnLogprobs:
        """Return the log-probabilities of given tokens ``[m]`` under logits ``[m, vocabulary]``."""
        ...


class GreedyDrawer:
    """Takes the likeliest token, in NumPy."""

    def check(self, request: Request) -> None:
        """Raise ``ConfigError`` unless the request is plainly greedy."""
        params = request.sampling
        wants_logprobs = params.logprobs is not None or request.prompt_logprobs
        if not params.is_greedy or params.has_penalties or wants_logprobs:
            raise ConfigError(
                "sampling: only temperature=0 without penalties and logprobs is possible without torch",
                field="sampling",
                value=params,
            )

    def enter(self, row: int, request: Request, order: int) -> None:
        """Do nothing: greedy draws have no parameters."""

    def prepare(self, rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None = None) -> Draw:
        """Return a draw of the likeliest token that is not a stop token too early."""
        banned = early_stops(rows, sequences, ahead)

        def draw(logits: npt.ArrayLike) -> Drawn:
            scores = np.asarray(logits)
            if banned is not None:
                scores = scores.copy()
                scores[banned] = -np.inf
            tokens = scores.argmax(axis=1)
            best = scores[np.arange(len(tokens)), tokens]
            if not np.isfinite(best).all():
                bad = np.flatnonzero(~np.isfinite(best)).tolist()
                raise EngineError(f"logits of rows {bad} have no finite largest value", rows=bad)
            return Drawn(tokens.astype(np.int64))

        return draw

    def score(self, logits: npt.ArrayLike, tokens: Int64Array, wanted: Int64Array) -> DrawnLogprobs:
        """Never asked: such requests are refused."""
        raise InternalError("a greedy drawer was asked for log-probabilities")


def early_stops(
    rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None = None
) -> tuple[Int64Array, Int64Array] | None:
    """Return ``(place, token)`` of stop tokens that may not be drawn yet; None when there are none."""
    early = next_positions(rows, sequences, ahead) + 1 < sequences.min_length[rows]
    if not early.any():
        return None
    stops = sequences.stop_ids[rows]
    place, column = np.nonzero((stops >= 0) & early[:, None])
    return place, stops[place, column]


def next_positions(rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None) -> Int64Array:
    """Return the positions of the tokens to be drawn."""
    return sequences.num_tokens[rows] if ahead is None else sequences.num_tokens[rows] + ahead


def request_logprobs(
    drawn: Drawn, rows: Int64Array, sequences: RunningSequences, is_kept: BoolArray | None = None
) -> tuple[tuple[str, TokenLogprob], ...]:
    """Return by request id what the rows that want log-probabilities have drawn, before a row is given away.

    Tokens behind a draft that was wrong are not kept.
    """
    found = drawn.logprobs
    if found is None:
        return ()
    wants = (found.wanted >= 0) & (sequences.phase[rows] != Phase.FINISHED)
    if is_kept is not None:
        wants &= is_kept
    return tuple(
        (sequences.request(int(rows[place])).request_id, found.of(place, int(drawn.tokens[place])))
        for place in np.flatnonzero(wants).tolist()
    )
