"""The offline face: prompts in, outputs or a stream of deltas out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, overload

import numpy as np

from tidegate.base import Clock, ConfigError, Int32Array, OutOfPages, shown
from tidegate.cache import KVCacheManager
from tidegate.engine import Engine
from tidegate.request import Request, RequestOutput, SamplingParams, TokenDelta, token_array
from tidegate.runtime.build import build_manager, build_session
from tidegate.runtime.config import RuntimeConfig
from tidegate.runtime.session import Session
from tidegate.scheduling import SchedulerStatistics

_BEGUN = TokenDelta(request_id="", tokens=np.zeros(0, np.int32))
Prompt = str | Sequence[int] | Int32Array
ChatMessages = Sequence[Mapping[str, object]]


class LLM:
    """A model, its cache and its scheduler in one object. Not thread-safe.

    Without ``engine`` the reference engine runs ``model`` (default: the packaged one). An engine of your own comes
    with ``eos_token_ids`` and, since the text belongs to a model, takes prompts as token ids. ``settings`` are those
    of ``RuntimeConfig``, flat, e.g. ``max_num_tokens=512``; vLLM's names are accepted.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        engine: Engine | None = None,
        eos_token_ids: tuple[int, ...] = (),
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        if engine is not None and model is not None:
            raise ConfigError(
                f"model={model!r} and an engine are given; the engine brings its own model", field="model"
            )
        config = RuntimeConfig.from_settings({"model": model, **settings})
        self._text = None
        if engine is None:
            from tidegate.runtime.model import load_model  # needs torch and transformers, which are optional

            engine, self._text = load_model(config.model)
        self._manager = build_manager(engine, config)
        self._session = build_session(
            engine, self._manager, config, eos_token_ids=eos_token_ids, text=self._text, clock=clock
        )
        self._vocab_size = engine.vocab_size
        self._inbox: dict[str, list[TokenDelta]] = {}
        self._num_requests = 0
        self._abandoned: list[str] = []
        self._is_stepping = False

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def manager(self) -> KVCacheManager:
        """The cache, for statistics and audits."""
        return self._manager

    @property
    def session(self) -> Session:
        """What ``generate`` drives, for callers that want to step themselves."""
        return self._session

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        stream: Literal[False] = False,
        **fields: object,
    ) -> list[RequestOutput]: ...

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        stream: Literal[True],
        **fields: object,
    ) -> Iterator[TokenDelta]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        stream: bool = False,
        **fields: object,
    ) -> list[RequestOutput] | Iterator[TokenDelta]:
        """Complete one prompt or several, text or token ids; outputs come in the order of the prompts.

        ``fields`` are those of ``Request``, such as ``max_tokens`` or ``stop``. With ``stream`` an iterator of deltas
        of all prompts, told apart by ``request_id``; leaving it early aborts what is left. A refused prompt raises
        before any is run.
        """
        if stream:
            return self._run(self._submit(_as_list(prompts), sampling_params, fields, stream=True))
        return self._complete(_as_list(prompts), sampling_params, fields)

    def chat(
        self, messages: ChatMessages, sampling_params: SamplingParams | None = None, **fields: object
    ) -> RequestOutput:
        """Answer a conversation of ``{"role": ..., "content": ...}`` messages."""
        if self._text is None:
            raise ConfigError("messages need a model with text; this engine takes token ids", field="messages")
        outputs = self._complete([self._text.encode_chat(messages)], sampling_params, fields)
        return outputs[0]

    def abort(self, request_id: str) -> bool:
        """End a running or waiting request; False when there is none of that id."""
        return self._session.abort(request_id)

    def statistics(self) -> SchedulerStatistics:
        """Return the scheduler's counters."""
        return self._session.statistics()

    def close(self) -> None:
        """Abort what runs and stop. Idempotent."""
        self._session.close()

    def _request(self, prompt: Prompt, index: int, params: SamplingParams, fields: Mapping[str, object]) -> Request:
        name = f"prompts[{index}]"
        if isinstance(prompt, str):
            if self._text is None:
                raise ConfigError(f"{name}={prompt!r}: this engine has no tokenizer; give token ids", field=name)
            if not prompt:
                raise ConfigError(f"{name}='' must not be empty", field=name, value=prompt)
            prompt = self._text.encode(prompt)
        tokens = token_array(prompt, field=name)
        values = {"arrival_s": self._session.now(), **fields}
        for taken in ("request_id", "prompt", "sampling"):
            if taken in fields:
                raise ConfigError(f"{taken}={shown(fields[taken])} is given by generate itself", field=taken)
        if isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        try:
            request_id = f"request-{self._num_requests + index}"
            return Request(request_id=request_id, prompt=tokens, sampling=params, **values)  # type: ignore[arg-type]  # Request checks each field
        except TypeError as error:
            raise ConfigError(f"unknown field of a request: {error}", field="fields") from None

    def _complete(
        self, prompts: Sequence[Prompt], params: SamplingParams | None, fields: Mapping[str, object]
    ) -> list[RequestOutput]:
        """Run prompts to their ends; outputs come in the order of the prompts."""
        request_ids = self._submit(prompts, params, fields, stream=False)
        outputs = {delta.request_id: delta.output for delta in self._run(request_ids) if delta.output is not None}
        return [outputs[request_id] for request_id in request_ids]

    def _submit(
        self, prompts: Sequence[Prompt], params: SamplingParams | None, fields: Mapping[str, object], *, stream: bool
    ) -> list[str]:
        """Submit all prompts or none; return their request ids."""
        params = SamplingParams() if params is None else params
        requests = [self._request(prompt, index, params, fields) for index, prompt in enumerate(prompts)]
        self._num_requests += len(requests)
        for count, request in enumerate(requests):
            try:
                self._session.submit(request, stream=stream)
            except Exception:
                for earlier in requests[:count]:
                    self._session.abort(earlier.request_id)
                    del self._inbox[earlier.request_id]
                raise
            self._inbox[request.request_id] = []
        return [request.request_id for request in requests]

    def _run(self, request_ids: Sequence[str]) -> Iterator[TokenDelta]:
        """Return the deltas of these requests; dropping the iterator, read or not, aborts what is left."""
        deltas = self._deltas(request_ids)
        next(deltas)  # into its `try`: a generator that was never begun would clean nothing up
        return deltas

    def _deltas(self, request_ids: Sequence[str]) -> Iterator[TokenDelta]:
        """Step until these requests have ended, yielding what concerns them; others' deltas stay in their boxes."""
        left = set(request_ids)
        try:
            yield _BEGUN
            while left:
                for request_id in [i for i in request_ids if i in left and self._inbox[i]]:
                    box, self._inbox[request_id] = self._inbox[request_id], []
                    for delta in box:
                        if delta.output is not None:
                            left.discard(request_id)
                        yield delta
                if left:
                    self._deliver()
        finally:
            self._abandoned += left
            self._abort_abandoned()
            for request_id in request_ids:
                del self._inbox[request_id]

    def _abort_abandoned(self) -> None:
        """Abort what nobody waits for, unless a step runs: the garbage collector drops iterators at any time."""
        while self._abandoned and not self._is_stepping:
            self._session.abort(self._abandoned.pop())

    def _deliver(self) -> None:
        self._is_stepping = True
        try:
            deltas = self._session.step()
            if not deltas:
                self._session.rest()
        finally:
            self._is_stepping = False
        self._abort_abandoned()
        for delta in deltas:
            if delta.request_id in self._inbox:
                self._inbox[delta.request_id].append(delta)
        if self._session.stall is not None:
            stall = self._session.stall
            raise OutOfPages(str(stall), request_id=stall.wait.request_id, shortage=stall.wait.shortage)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Tell one prompt from several: a string or a list of integers is one."""
    if isinstance(prompts, (str, np.ndarray)):
        return [prompts]
    if not _is_filled_sequence(prompts):
        raise ConfigError(f"prompts={shown(prompts)} must be a prompt or a non-empty list of prompts", field="prompts")
    if all(isinstance(item, (int, np.integer)) for item in prompts):
        return [prompts]  # type: ignore[list-item]  # a list of ids, as just seen
    return list(prompts)  # type: ignore[arg-type]  # a list of prompts: each is checked by its reader


def _is_filled_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and len(value) > 0
