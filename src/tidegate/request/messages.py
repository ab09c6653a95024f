"""What ranks tell each other of requests, as bytes: new requests and aborts one way, deltas the other.

Rows instead of objects, so that field names are written once. A message is decoded whole, or refused with
``ConfigError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import get_origin, get_type_hints

from tidegate.base import ConfigError, Int32Array, check_bool, check_text, shown
from tidegate.request.output import TokenDelta
from tidegate.request.request import Request
from tidegate.request.rows import row_shape
from tidegate.request.sampling_params import SamplingParams
from tidegate.request.wire import TokenReader, check_ids, check_string, items, members, pack, unpack

_SAMPLING = tuple(field.name for field in fields(SamplingParams))
_REQUEST = tuple(field.name for field in fields(Request))
_TUPLES = tuple(name for name, hint in get_type_hints(Request).items() if get_origin(hint) is tuple)
_DELTA = row_shape(TokenDelta)


@dataclass(frozen=True, slots=True)
class Envelope:
    """New requests for all ranks, and ids of requests to abort, each in order.

    ``streamed`` are ids of new requests whose tokens are wanted as they come; ``stops`` tells all ranks to stop.
    """

    requests: tuple[Request, ...] = ()
    aborts: tuple[str, ...] = ()
    streamed: tuple[str, ...] = ()
    stops: bool = False


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the envelope as bytes."""
    for request in envelope.requests:
        check_ids("prompt", request.prompt)
    for name, ids in (("aborts", envelope.aborts), ("streamed", envelope.streamed)):
        for request_id in ids:
            check_text(name, request_id)
    _check_streamed(envelope)
    check_bool("stops", envelope.stops)
    header: dict[str, object] = {
        "kind": "envelope",
        "fields": _REQUEST,
        "sampling": _SAMPLING,
        "requests": [_request_row(request) for request in envelope.requests],
        "aborts": envelope.aborts,
        "streamed": envelope.streamed,
        "stops": envelope.stops,
    }
    return pack(header, [request.prompt for request in envelope.requests])


def decode_envelope(message: bytes) -> Envelope:
    """Return the envelope; every request is checked as if it were made here."""
    header, ids = unpack(message)
    names = ("kind", "fields", "sampling", "requests", "aborts", "streamed", "stops")
    kind, request_fields, sampling_fields, rows, aborts, streamed, stops = members("header", header, names)
    _check_kind(kind, "envelope")
    _check_names("fields", request_fields, _REQUEST)
    _check_names("sampling", sampling_fields, _SAMPLING)
    requests = [_request_of(f"requests[{i}]", row, ids) for i, row in enumerate(items("requests", rows))]
    ids.close()
    check_bool("stops", stops)
    envelope = Envelope(tuple(requests), _texts("aborts", aborts), _texts("streamed", streamed), stops is True)
    _check_streamed(envelope)
    return envelope


def encode_deltas(deltas: Sequence[TokenDelta]) -> bytes:
    """Return deltas, with the outputs some of them carry, as bytes."""
    ids: list[Int32Array] = []
    rows = [_DELTA.write(f"deltas[{i}]", delta, ids) for i, delta in enumerate(deltas)]
    return pack({"kind": "deltas", "deltas": rows}, ids)


def decode_deltas(message: bytes) -> list[TokenDelta]:
    """Return the deltas, in order."""
    header, ids = unpack(message)
    kind, rows = members("header", header, ("kind", "deltas"))
    _check_kind(kind, "deltas")
    deltas = [_DELTA.read(f"deltas[{i}]", row, ids) for i, row in enumerate(items("deltas", rows))]
    ids.close()
    return deltas


def _request_row(request: Request) -> list[object]:
    row = {name: getattr(request, name) for name in _REQUEST}
    row["prompt"] = len(request.prompt)
    row["sampling"] = [getattr(request.sampling, name) for name in _SAMPLING]
    return list(row.values())


def _request_of(where: str, row: object, ids: TokenReader) -> Request:
    values: dict[str, object] = dict(zip(_REQUEST, items(where, row, len(_REQUEST)), strict=True))
    for name in _TUPLES:
        values[name] = tuple(items(f"{where}.{name}", values[name]))
    values["prompt"] = ids.take(f"{where}.prompt", values["prompt"])
    sampling = items(f"{where}.sampling", values["sampling"], len(_SAMPLING))
    try:
        # Both check every field when they are made: what came from outside needs no second set of rules.
        values["sampling"] = SamplingParams(**dict(zip(_SAMPLING, sampling, strict=True)))  # type: ignore[arg-type]
        return Request(**values)  # type: ignore[arg-type]  # checked there
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", **error.evidence) from None


def _texts(name: str, value: object) -> tuple[str, ...]:
    found = []
    for i, text in enumerate(items(name, value)):
        check_text(f"{name}[{i}]", text)
        found.append(check_string(f"{name}[{i}]", text))
    return tuple(found)


def _check_streamed(envelope: Envelope) -> None:
    new = {request.request_id for request in envelope.requests}
    for i, request_id in enumerate(envelope.streamed):
        if request_id not in new:
            legal = "the id of a request in the same message"
            raise ConfigError(f"streamed[{i}]={shown(request_id)} must be {legal}", field="streamed", value=request_id)


def _check_kind(kind: object, expected: str) -> None:
    if kind != expected:
        raise ConfigError(f"kind={shown(kind)} must be {expected!r}", field="kind", value=kind)


def _check_names(field: str, value: object, names: tuple[str, ...]) -> None:
    given = items(field, value)
    if given != list(names):
        unknown, missing = [each for each in given if each not in names], [name for name in names if name not in given]
        wrong = f"unknown {shown(unknown)}, missing {missing}"
        raise ConfigError(f"{field} must be {list(names)}, in this order: {wrong}", field=field)
