"""What somebody asked for: immutable, checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from tidegate.base import ConfigError, Int32Array, check_bool, check_integer, check_real, check_text, shown
from tidegate.request.sampling_params import SamplingParams

CacheAccess = Literal["read_write", "read", "none"]
_ACCESS = ("read_write", "read", "none")
MAX_STOPS = 64
MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One ask. ``prompt`` is int32 (see ``token_array``); ``priority`` low = first; ``arrival_s`` is clock time.

    ``lora_id``, ``lora_version`` and ``salt`` name the reuse scope: requests of different scopes share no cache.
    ``run_to_capacity`` lets a request that can never fit run until its sequence is full and end with ``capacity``
    instead of being refused. Stop tokens and strings do not count before ``min_tokens`` outputs. ``declared`` are
    prefix lengths worth keeping for others, such as the end of a system prompt: a prefill chunk ends there.
    ``prompt_logprobs`` returns the log-probability of each prompt token, with ``sampling.logprobs`` likeliest ones; for
    that the whole prompt is computed, reusing nothing. A request that has not ended ``timeout_s`` after its arrival is
    aborted. Across ranks, ``attention_dp_rank`` asks for one rank, strictly unless ``attention_dp_relax``, and requests
    of one ``conversation_id`` are kept together.
    """

    request_id: str
    prompt: Int32Array
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    priority: int = 0
    arrival_s: float = 0.0
    lora_id: str | None = None
    lora_version: str | int = 0
    salt: str | None = None
    access: CacheAccess = "read_write"
    prompt_logprobs: bool = False
    run_to_capacity: bool = False
    declared: tuple[int, ...] = ()
    timeout_s: float | None = None
    attention_dp_rank: int | None = None
    attention_dp_relax: bool = True
    conversation_id: str | None = None

    def __post_init__(self) -> None:
        check_text("request_id", self.request_id)
        _check_prompt(self.prompt)
        if not isinstance(self.sampling, SamplingParams):
            raise ConfigError(f"sampling={shown(self.sampling)} must be SamplingParams", field="sampling")
        check_integer("max_tokens", self.max_tokens, 1, MAX_INT32)
        check_integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        check_integer("priority", self.priority, -(2**31), MAX_INT32)
        check_real("arrival_s", self.arrival_s, 0.0, 1e18)
        for name in ("ignore_eos", "prompt_logprobs", "run_to_capacity", "attention_dp_relax"):
            check_bool(name, getattr(self, name))
        if self.timeout_s is not None:
            check_real("timeout_s", self.timeout_s, 0.0, 1e9)
        if self.attention_dp_rank is not None:
            check_integer("attention_dp_rank", self.attention_dp_rank, 0, 2**16)
        for name in ("lora_id", "salt", "conversation_id"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        version = self.lora_version
        if isinstance(version, bool) or not isinstance(version, (str, int)):
            raise ConfigError(f"lora_version={shown(version)} must be a string or an integer", field="lora_version")
        if isinstance(version, int):
            check_integer("lora_version", version, -(2**63), 2**63 - 1)
        if self.access not in _ACCESS:
            raise ConfigError(f"access={shown(self.access)} must be one of {list(_ACCESS)}", field="access")
        self._check_stops()
        _check_tuple("declared", self.declared)
        for length in self.declared:
            check_integer("declared", length, 1, len(self.prompt))

    def _check_stops(self) -> None:
        for name, stops in (("stop", self.stop), ("stop_token_ids", self.stop_token_ids)):
            _check_tuple(name, stops)
        for text in self.stop:
            check_text("stop", text)
        for token in self.stop_token_ids:
            check_integer("stop_token_ids", token, 0, MAX_INT32)

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt)

    @property
    def max_length(self) -> int:
        """Prompt and output together, in tokens, at most."""
        return len(self.prompt) + self.max_tokens


def token_array(tokens: npt.ArrayLike | Sequence[int], *, field: str = "prompt") -> Int32Array:
    """Return ``tokens`` as a read-only int32 copy; raise ``ConfigError`` on anything that is not a list of ids."""
    try:
        given = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"{field} is not a list of token ids: {error}", field=field) from None
    if given.ndim != 1:
        raise ConfigError(f"{field} must be one list of token ids, got {given.ndim} dimensions", field=field)
    if len(given) == 0:
        raise ConfigError(f"{field}=[] must hold at least one token", field=field)
    if given.dtype.kind not in "iu":
        raise ConfigError(f"{field} must hold integers, got {given.dtype.name} values", field=field)
    bad = (given < 0) | (given > MAX_INT32)
    if bad.any():
        at = int(np.argmax(bad))
        raise ConfigError(f"{field}[{at}]={given[at]} must be in [0, {MAX_INT32}]", field=field, value=int(given[at]))
    array = given.astype(np.int32)
    array.flags.writeable = False
    return array


def check_vocabulary(tokens: Int32Array, vocab_size: int, *, field: str = "prompt") -> None:
    """Raise ``ConfigError`` when a token id is no id of the model."""
    bad = (tokens < 0) | (tokens >= vocab_size)
    if bad.any():
        at = int(np.argmax(bad))
        raise ConfigError(
            f"{field}[{at}]={int(tokens[at])} must be in [0, {vocab_size - 1}], the model's vocabulary",
            field=field,
            value=int(tokens[at]),
        )


def _check_prompt(prompt: object) -> None:
    if not isinstance(prompt, np.ndarray) or prompt.dtype != np.int32 or prompt.ndim != 1:
        raise ConfigError("prompt must be a one-dimensional int32 array; token_array makes one", field="prompt")
    if len(prompt) == 0:
        raise ConfigError("prompt=[] must hold at least one token", field="prompt")


def _check_tuple(name: str, value: object) -> None:
    if not isinstance(value, tuple) or len(value) > MAX_STOPS:
        raise ConfigError(f"{name}={shown(value)} must be a tuple of at most {MAX_STOPS}", field=name, value=value)
