"""A served model as something ``bench`` can measure."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.base import Clock, InternalError
from tidegate.bench import Progress, TargetStatistics
from tidegate.cli.served_model import ServedModel
from tidegate.request import Request, TokenDelta


class ModelTarget:
    """Runs the model's steps whenever the load waits for something, and sleeps when there is nothing to run."""

    def __init__(self, served: ServedModel, clock: Clock) -> None:
        self._model = served
        self._clock = clock
        self._in_flight = 0

    def start(self) -> None:
        """Nothing to do: a model is opened ready."""

    def submit(self, request: Request) -> None:
        """Hand the request on."""
        self._model.submit(request)
        self._in_flight += 1

    def wait(self, timeout_s: float | None) -> Sequence[Progress]:
        """Run one step, and rest when it did nothing; or sleep when nothing is in flight."""
        if not self._in_flight:
            if timeout_s is None:
                raise InternalError("nothing is in flight and nothing will arrive")
            self._clock.wait(timeout_s)
            return []
        deltas = self._model.step()
        if not deltas:
            self._model.rest(timeout_s)
        now_s = self._clock.now()
        progress = [_progress(delta, now_s) for delta in deltas]
        self._in_flight -= sum(one.finish_reason is not None for one in progress)
        return progress

    def statistics(self) -> TargetStatistics:
        """Return the model's."""
        return self._model.statistics()


def _progress(delta: TokenDelta, at_s: float) -> Progress:
    output = delta.output
    return Progress(
        request_id=delta.request_id,
        at_s=at_s,
        num_tokens=len(delta.tokens),
        finish_reason=output.finish_reason if output else None,
        num_cached_tokens=output.num_cached_tokens if output else 0,
    )
