"""What the sampler is told and what it answers: arrays with one entry per row of logits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.base import EngineError, Int32Array, Int64Array

Float32Array = npt.NDArray[np.float32]
NO_LOGPROBS = -1


@dataclass(frozen=True, slots=True)
class TokenLists:
    """One list of tokens per row, end to end: row ``i`` has ``tokens[indptr[i]:indptr[i+1]]``."""

    tokens: Int64Array
    indptr: Int64Array


@dataclass(frozen=True, slots=True)
class History:
    """The tokens so far of each row, prompt first; of them ``prompt_lengths[i]`` are the prompt.

    Repetition penalties look at all of them, presence and frequency penalties at what was generated.
    """

    sequences: TokenLists
    prompt_lengths: Int64Array


@dataclass(frozen=True, slots=True)
class LogitBias:
    """``values[j]`` is added to the logit of ``sequences.tokens[j]`` in its row."""

    sequences: TokenLists
    values: Float32Array


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """Parameters of every row, as arrays ``[m]``.

    Off values: temperature 0 (greedy), top_k 0, top_p 1, min_p 0, repetition_penalty 1, the other penalties 0,
    logprobs -1 (0 asks for the chosen token's only, n for the n likeliest besides). ``positions`` is the place in its
    sequence of the token being chosen: with the row's seed it decides the draw, so a request's tokens depend on
    neither its row nor its company. ``history`` is needed where a penalty is on.
    """

    temperature: Float32Array
    top_k: Int32Array
    top_p: Float32Array
    min_p: Float32Array
    repetition_penalty: Float32Array
    presence_penalty: Float32Array
    frequency_penalty: Float32Array
    seeds: Int64Array
    positions: Int64Array
    logprobs: Int32Array
    history: History | None = None
    bias: LogitBias | None = None

    def __post_init__(self) -> None:
        arrays = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("history", "bias")}
        if len({a.shape for a in arrays.values()}) != 1:
            raise EngineError(f"sampling arrays differ in shape: { ({n: a.shape for n, a in arrays.items()}) }")
        if self.history is None and self.has_penalties:
            raise EngineError("penalties need the history of the rows")

    @classmethod
    def greedy(cls, rows: int) -> SamplingBatch:
        """Return a batch that takes the likeliest token everywhere."""
        return cls(
            temperature=np.zeros(rows, np.float32),
            top_k=np.zeros(rows, np.int32),
            top_p=np.ones(rows, np.float32),
            min_p=np.zeros(rows, np.float32),
            repetition_penalty=np.ones(rows, np.float32),
            presence_penalty=np.zeros(rows, np.float32),
            frequency_penalty=np.zeros(rows, np.float32),
            seeds=np.zeros(rows, np.int64),
            positions=np.zeros(rows, np.int64),
            logprobs=np.full(rows, NO_LOGPROBS, np.int32),
        )

    @property
    def rows(self) -> int:
        """Number of rows of logits."""
        return int(self.temperature.size)

    @property
    def has_penalties(self) -> bool:
        """Whether any row has one on."""
        return bool(
            (self.repetition_penalty != 1).any()
            or (self.presence_penalty != 0).any()
            or (self.frequency_penalty != 0).any()
        )


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log-probabilities under the raw logits: of the chosen tokens ``[m]``, of the likeliest ``[m, n]``.

    ``n`` is the largest number asked for; rows that asked for fewer take that many.
    """

    chosen: Float32Array
    top_tokens: Int64Array
    top: Float32Array


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token per row; log-probabilities where any row asked for them."""

    tokens: Int64Array
    logprobs: Logprobs | None
