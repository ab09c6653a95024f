"""What a bar consists of: cases to sample, and the peers' rows to hold against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class PeerCall:
    """One call of a function of a peer's script, and which rows of its answer are wanted.

    ``call`` names an entry of the table in ``peer_driver.py``. The value is the sum of the rows' ``column``.
    """

    peer: Literal["vllm", "sglang", "vllm-scheduler"]
    call: str
    arguments: tuple[tuple[str, int | str], ...]

    @classmethod
    def of(cls, peer: Literal["vllm", "sglang", "vllm-scheduler"], call: str, **arguments: int | str) -> PeerCall:
        """Write a call with its arguments as keywords."""
        return cls(peer, call, tuple(sorted(arguments.items())))


@dataclass(frozen=True, slots=True)
class Versus:
    """How often a peer's value must contain ours: ``reach`` times, summed over ``rows`` of each of ``calls``."""

    calls: tuple[PeerCall, ...]
    rows: tuple[str, ...]
    reach: float
    column: str = "median"
    label: str = ""

    @property
    def name(self) -> str:
        """Key of this comparison in the results."""
        return " ".join(part for part in (self.calls[0].peer, self.label) if part)


@dataclass(frozen=True, slots=True)
class Case:
    """One number with its limit. ``sample`` sets up what it needs and returns the values of one round, in ``unit``.

    The result is the median over all rounds, and holds when it is at most ``limit``. ``name`` and ``keys`` name the row
    of ``--out``, in the peers' words.
    """

    bar: str
    what: str
    unit: str
    limit: float | None
    sample: Callable[[], list[float]]
    name: str
    keys: Mapping[str, int | str] = field(default_factory=dict)
    versus: tuple[Versus, ...] = ()
