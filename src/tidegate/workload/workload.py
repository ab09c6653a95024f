"""Requests and when they come, before anybody serves them."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ConfigError, shown
from tidegate.workload.content import Content


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadRequest:
    """One request of a workload.

    It arrives ``arrival_s`` after the start of the run or, as a turn of a session, ``think_s`` after the request
    ``after`` has ended, and not before ``arrival_s``. It produces exactly ``num_output_tokens``: token ``i`` is place
    ``i`` of the text ``output_key`` (``content_tokens``), so that a later turn can repeat them as a segment.
    ``declared`` prompt lengths are worth a checkpoint, as in ``Request``.
    """

    request_id: str
    prompt: Content
    num_output_tokens: int
    output_key: int
    arrival_s: float = 0.0
    after: str | None = None
    think_s: float = 0.0
    conversation_id: str | None = None
    declared: tuple[int, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Requests by arrival, later turns behind earlier ones. ``source`` says where they come from, for reports.

    With ``concurrency`` the load is closed: so many are in flight at once, and one that has arrived waits outside for
    another to end. Raises ``ConfigError`` for a request id that comes twice, or a turn before the one it follows.
    """

    source: str
    requests: tuple[WorkloadRequest, ...]
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency={self.concurrency} must be >= 1, or absent", field="concurrency")
        seen: set[str] = set()
        for request in self.requests:
            if request.request_id in seen:
                raise ConfigError(f"request_id={shown(request.request_id)} comes twice", field="request_id")
            if request.after is not None and request.after not in seen:
                raise ConfigError(
                    f"after={shown(request.after)} of request {shown(request.request_id)} must name an earlier request",
                    field="after",
                )
            seen.add(request.request_id)
