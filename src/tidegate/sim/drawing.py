"""What simulated requests produce: the text that their workload says, token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int64Array, InternalError
from tidegate.request import Request, RunningSequences
from tidegate.runtime import Draw, Drawn, DrawnLogprobs
from tidegate.workload import content_seeds, seeded_tokens


class ContentDrawer:
    """Draws place ``i`` of the text that a request's output was said to be. ``keys`` are texts by request id.

    It is given away with the request's row, so the entry of ``keys`` goes when nobody needs it again.
    """

    def __init__(self, max_sequences: int, keys: dict[str, int]) -> None:
        self._text_of = keys
        self._seeds = np.zeros(max_sequences, dtype=np.uint64)

    def check(self, request: Request) -> None:
        """Raise ``ConfigError`` for a request that wants to know probabilities: there are none."""
        if request.sampling.logprobs is not None or request.prompt_logprobs:
            raise ConfigError(f"logprobs={request.sampling.logprobs}: a simulated engine has none", field="logprobs")

    def enter(self, row: int, request: Request, order: int) -> None:
        """Note the text of the request that entered ``row``."""
        self._seeds[row] = content_seeds(np.array([self._text_of[request.request_id]]))[0]

    def prepare(self, rows: Int64Array, sequences: RunningSequences, ahead: Int64Array | None = None) -> Draw:
        """Return the draw for these rows' next tokens."""
        places = sequences.num_tokens[rows] - sequences.num_prompt[rows]
        tokens = seeded_tokens(self._seeds[rows], places if ahead is None else places + ahead).astype(np.int64)
        return lambda logits: Drawn(tokens)

    def score(self, logits: npt.ArrayLike, tokens: Int64Array, wanted: Int64Array) -> DrawnLogprobs:
        """Never asked: such requests are refused."""
        raise InternalError("a simulated engine was asked for log-probabilities")
