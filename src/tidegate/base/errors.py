"""Every error tidegate raises on purpose.

::

    TidegateError
    ├── ConfigError             a setting, file or argument is wrong; names the field, the value, what is legal
    ├── CapacityError           more was asked for than there is
    │   ├── OutOfPages          a pool group is short of pages
    │   ├── RequestTooLong      a request can never fit, even alone
    │   └── QueueFull           the waiting queue is at its limit
    ├── StateError              the call does not suit the object's state
    │   ├── Closed              used after close
    │   ├── Suspended           needs an active sequence
    │   └── WrongThread         called from a thread that does not own the object
    ├── EngineError             the engine failed in a step
    ├── RankError               a rank died or disagreed
    └── InternalError           a broken invariant: our bug, never the caller's

Shortage on the hot path is a value, not an exception; these are for misuse, refusal and breakage.
"""

from __future__ import annotations


class TidegateError(Exception):
    """Root of the tree. ``evidence`` holds the facts the message states."""

    def __init__(self, message: str, **evidence: object) -> None:
        super().__init__(message)
        self.evidence = evidence


class ConfigError(TidegateError):
    """A setting, a file or an argument is wrong."""


class CapacityError(TidegateError):
    """More was asked for than there is."""


class OutOfPages(CapacityError):
    """A pool group is short of pages."""


class RequestTooLong(CapacityError):
    """A request can never fit, even alone."""


class QueueFull(CapacityError):
    """The waiting queue is at its limit."""


class StateError(TidegateError):
    """The call does not suit the object's state."""


class Closed(StateError):
    """Used after close."""


class Suspended(StateError):
    """The sequence owns no pages now."""


class WrongThread(StateError):
    """Called from a thread that does not own the object."""


class EngineError(TidegateError):
    """The engine failed in a step."""


class RankError(TidegateError):
    """A rank died or disagreed."""


class InternalError(TidegateError):
    """A broken invariant: our bug, never the caller's."""
