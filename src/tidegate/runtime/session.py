"""Requests in, deltas out: one scheduler, cache and engine, driven step by step by whoever owns the session."""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from tidegate.base import Clock, Closed, ConfigError, Int32Array, check_text, shown
from tidegate.request import FinishReason, Request, RequestOutput, TokenDelta, TokenLogprob
from tidegate.runtime.drawing import Drawer
from tidegate.runtime.step import StepLoop, StepReport
from tidegate.scheduling import Scheduler, SchedulerStatistics, Stall

if TYPE_CHECKING:
    from tidegate.runtime.text_streams import TextStream, TextStreams


@dataclasses.dataclass(slots=True, eq=False)
class _Open:
    """What a session remembers of a request that has not ended."""

    request: Request
    is_streamed: bool
    text: TextStream | None
    num_seen: int = 0
    logprobs: list[TokenLogprob] = dataclasses.field(default_factory=list)
    prompt_logprobs: list[TokenLogprob | None] = dataclasses.field(default_factory=list)

    @property
    def is_watched(self) -> bool:
        """Whether its tokens are looked at as they come."""
        return self.is_streamed or bool(self.request.stop)


class Session:
    """Not thread-safe: submit, abort and step from one thread; each takes effect between steps."""

    def __init__(
        self, scheduler: Scheduler, loop: StepLoop, drawer: Drawer, *, clock: Clock, text: TextStreams | None = None
    ) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._drawer = drawer
        self._clock = clock
        self._text = text
        self._open: dict[str, _Open] = {}
        self._watched: dict[str, _Open] = {}
        self._ready: list[TokenDelta] = []
        self._is_closed = False
        self.stall: Stall | None = None
        self.timer_s: float | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has anything to bring, now or later."""
        return bool(self._ready) or self._scheduler.has_work or self._loop.in_flight

    def statistics(self) -> SchedulerStatistics:
        """Return the scheduler's counters."""
        return self._scheduler.statistics()

    def now(self) -> float:
        """Return the session's clock, for arrival times."""
        return self._clock.now()

    def submit(self, request: Request, *, stream: bool = False) -> None:
        """Queue a request. With ``stream`` its tokens come as deltas; its end always does.

        Raises ``ConfigError``, ``RequestTooLong`` or ``QueueFull``; then nothing has changed.
        """
        if self._is_closed:
            raise Closed("the session is closed")
        self._check(request)
        text = None if self._text is None else self._text.open(request)
        ended = self._scheduler.submit(request, now=self._clock.now())
        entry = _Open(request, stream, text)
        if request.prompt_logprobs:
            entry.prompt_logprobs = [None] * request.num_prompt_tokens
        self._open[request.request_id] = entry
        if entry.is_watched:
            self._watched[request.request_id] = entry
        if ended is not None:
            self._ready.append(self._end(ended))

    def check(self, request: Request) -> None:
        """Raise what ``submit`` would raise for the request itself, whatever else waits or runs."""
        self._check(request)
        self._scheduler.check(request)

    def _check(self, request: Request) -> None:
        if not isinstance(request, Request):
            raise ConfigError(f"request={shown(request)} must be a Request", field="request")
        self._drawer.check(request)
        if request.stop and self._text is None:
            raise ConfigError(f"stop={request.stop!r} needs a tokenizer", field="stop", value=request.stop)

    def abort(self, request_id: str) -> bool:
        """End a request in any phase; its last delta comes with the next step. False when it is not here."""
        check_text("request_id", request_id)
        output = self._scheduler.finish(request_id, FinishReason.ABORTED, now=self._clock.now())
        if output is None:
            return False
        self._ready.append(self._end(output))
        return True

    def step(self) -> list[TokenDelta]:
        """Run the loop once and return what is new. ``stall`` then says why nothing can go on, if so.

        When ``timer_s`` is set, nothing runs and nothing will before that clock time, unless more is submitted.
        """
        if self._is_closed:
            raise Closed("the session is closed")
        self.expire()
        if not self._scheduler.has_work and not self._loop.in_flight:
            self.timer_s = None
            return self.take_ready()
        return self.absorb(self._loop.run_once())

    def withdraw(self, request_id: str) -> None:
        """Forget a request that waits and never ran: another session takes it over."""
        self._scheduler.withdraw(request_id)
        del self._open[request_id]
        self._watched.pop(request_id, None)

    def expire(self) -> None:
        """End requests whose time is over; their last deltas come with the next step."""
        self._ready.extend(self._end(output) for output in self._scheduler.expire(self._clock.now()))

    def rest(self, most_s: float | None = None) -> None:
        """Wait until ``timer_s``, or for ``most_s`` seconds if that is shorter; return at once without a timer."""
        if self.timer_s is not None:
            left = max(self.timer_s - self._clock.now(), 0.0)
            self._clock.wait(left if most_s is None else min(left, most_s))

    def take_ready(self) -> list[TokenDelta]:
        """Return what is new without a step: requests that ended since the last one."""
        deltas, self._ready = self._ready, []
        return deltas

    def absorb(self, report: StepReport) -> list[TokenDelta]:
        """Return what is new after a step that the loop has taken."""
        deltas = self.take_ready()
        self.stall, self.timer_s = report.stall, report.timer_s
        for request_id, logprob in report.logprobs:
            self._open[request_id].logprobs.append(logprob)
        for scored in report.prompts:
            entry = self._open.get(scored.request_id)
            if entry is not None:  # else it was ended since
                entry.prompt_logprobs[scored.first : scored.first + len(scored.logprobs)] = scored.logprobs
        deltas.extend(self._end(output) for output in report.outcome.finished)
        for request_id, entry in list(self._watched.items()):
            tokens = self._scheduler.sequences.output_since(request_id, entry.num_seen)
            if len(tokens):
                deltas.extend(self._advance(entry, tokens))
        return deltas

    def close(self) -> None:
        """Abort what is left, wait for the step in flight, and stop. Idempotent."""
        if self._is_closed:
            return
        for request_id in list(self._open):
            self.abort(request_id)
        self._is_closed = True
        self._loop.close()

    def _advance(self, entry: _Open, tokens: Int32Array) -> list[TokenDelta]:
        """Show a running request's new tokens, or end it when they complete a stop string."""
        request_id, text = entry.request.request_id, ""
        if entry.text is not None:
            piece = entry.text.push(tokens.tolist())
            text = piece.text
            if piece.is_stopped:
                output = self._scheduler.finish(request_id, FinishReason.STOP, now=self._clock.now())
                if output is not None:
                    return [self._close_text(entry, output, entry.num_seen + piece.num_tokens, text)]
        entry.num_seen += len(tokens)
        return [TokenDelta(request_id=request_id, tokens=tokens, text=text)] if entry.is_streamed else []

    def _end(self, output: RequestOutput) -> TokenDelta:
        """Turn a request's end into its last delta, with the text that was still to come."""
        entry = self._open[output.request_id]
        if entry.text is None:
            return self._forget(entry, output, entry.num_seen, "")
        piece = entry.text.push(output.tokens[entry.num_seen :].tolist())
        keep = entry.num_seen + piece.num_tokens
        if not piece.is_stopped:
            last = entry.text.flush()
            return self._close_text(entry, output, keep, piece.text + last.text, is_stopped=last.is_stopped)
        return self._close_text(entry, output, keep, piece.text)

    def _close_text(
        self, entry: _Open, output: RequestOutput, keep: int, text: str, *, is_stopped: bool = True
    ) -> TokenDelta:
        """Cut an output at its stop string, if that is what ended it, and attach its text."""
        assert entry.text is not None
        output = dataclasses.replace(output, text=entry.text.text)
        if is_stopped:
            output = dataclasses.replace(output, tokens=output.tokens[:keep], finish_reason=FinishReason.STOP)
        return self._forget(entry, output, entry.num_seen, text)

    def _forget(self, entry: _Open, output: RequestOutput, num_seen: int, text: str) -> TokenDelta:
        request_id = output.request_id
        del self._open[request_id]
        self._watched.pop(request_id, None)
        if entry.request.sampling.logprobs is not None:
            output = dataclasses.replace(output, logprobs=tuple(entry.logprobs[: output.num_tokens]))
        if entry.request.prompt_logprobs:
            output = dataclasses.replace(output, prompt_logprobs=tuple(entry.prompt_logprobs))
        new = output.tokens[num_seen:] if entry.is_streamed else np.zeros(0, dtype=np.int32)
        return TokenDelta(request_id=request_id, tokens=new, text=text if entry.is_streamed else "", output=output)
