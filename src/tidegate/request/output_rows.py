"""A finished output as a row of a message, and back."""

from __future__ import annotations

import math

from tidegate.base import ConfigError, check_integer, check_real, check_text, shown
from tidegate.request.output import RequestOutput, Timing, TokenLogprob
from tidegate.request.phase import FinishReason
from tidegate.request.wire import TokenReader, check_float, check_ids, check_string, items

OutputRow = list[object]
_REASONS = {reason.value: reason for reason in FinishReason}
_TIMES = ("arrival_s", "admitted_s", "first_token_s", "finished_s")
_OPTIONAL_TIMES = ("admitted_s", "first_token_s")
_WIDTH = 11
_MAX_INT32 = 2**31 - 1


def output_row(output: RequestOutput) -> OutputRow:
    """Return everything but the ids, of which prompt and tokens must follow in this order."""
    check_ids("output.prompt", output.prompt)
    check_ids("output.tokens", output.tokens)
    check_text("output.request_id", output.request_id)
    check_string("output.text", output.text)
    if output.error is not None:
        check_string("output.error", output.error)
    row: OutputRow = [
        output.request_id,
        len(output.prompt),
        len(output.tokens),
        output.finish_reason.value,
        [getattr(output.timing, name) for name in _TIMES],
        output.num_cached_tokens,
        output.num_suspensions,
        output.text,
        output.error,
        None if output.logprobs is None else [_logprob_row(entry) for entry in output.logprobs],
        None if output.prompt_logprobs is None else [_logprob_row(entry) for entry in output.prompt_logprobs],
    ]
    return row


def output_of(where: str, row: object, ids: TokenReader) -> RequestOutput:
    """Return the output; ``where`` begins every refusal."""
    values = items(where, row, _WIDTH)
    request_id, num_prompt, num_tokens, reason, times, num_cached, num_suspensions, text, error, drawn, prompt = values
    check_text(f"{where}.request_id", request_id)
    if not isinstance(reason, str) or reason not in _REASONS:
        legal = f"one of {list(_REASONS)}"
        raise ConfigError(f"{where}.finish_reason={shown(reason)} must be {legal}", field="finish_reason")
    return RequestOutput(
        request_id=check_string(f"{where}.request_id", request_id),
        prompt=ids.take(f"{where}.prompt", num_prompt),
        tokens=ids.take(f"{where}.tokens", num_tokens),
        finish_reason=_REASONS[reason],
        timing=_timing_of(f"{where}.timing", times),
        num_cached_tokens=_count(f"{where}.num_cached_tokens", num_cached),
        num_suspensions=_count(f"{where}.num_suspensions", num_suspensions),
        text=check_string(f"{where}.text", text),
        error=None if error is None else check_string(f"{where}.error", error),
        logprobs=None if drawn is None else _logprobs_of(f"{where}.logprobs", drawn),
        prompt_logprobs=None if prompt is None else _optional_logprobs_of(f"{where}.prompt_logprobs", prompt),
    )


def _logprob_row(entry: TokenLogprob | None) -> list[object] | None:
    if entry is None:
        return None
    numbers = [entry.logprob, *(logprob for _, logprob in entry.top)]
    if any(math.isnan(number) for number in numbers):
        raise ConfigError(f"logprob of token {entry.token} is NaN, must be a number", field="logprob")
    return [int(entry.token), float(entry.logprob), [[int(token), float(logprob)] for token, logprob in entry.top]]


def _logprobs_of(where: str, value: object) -> tuple[TokenLogprob, ...]:
    return tuple(_logprob_of(f"{where}[{i}]", entry) for i, entry in enumerate(items(where, value)))


def _optional_logprobs_of(where: str, value: object) -> tuple[TokenLogprob | None, ...]:
    entries = enumerate(items(where, value))
    return tuple(None if entry is None else _logprob_of(f"{where}[{i}]", entry) for i, entry in entries)


def _logprob_of(where: str, value: object) -> TokenLogprob:
    token, logprob, top = items(where, value, 3)
    pairs = [items(f"{where}.top", pair, 2) for pair in items(f"{where}.top", top)]
    return TokenLogprob(
        _count(f"{where}.token", token),
        check_float(f"{where}.logprob", logprob),
        tuple((_count(f"{where}.top", other), check_float(f"{where}.top", its)) for other, its in pairs),
    )


def _timing_of(where: str, value: object) -> Timing:
    times = dict(zip(_TIMES, items(where, value, len(_TIMES)), strict=True))
    for name, time_s in times.items():
        if time_s is not None or name not in _OPTIONAL_TIMES:
            check_real(f"{where}.{name}", time_s, -1e18, 1e18)
    return Timing(**times)  # type: ignore[arg-type]  # checked above


def _count(field: str, value: object) -> int:
    check_integer(field, value, 0, _MAX_INT32)
    assert isinstance(value, int)
    return value
