"""A step's decisions as data: frozen, priced, nothing taken yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.base import BoolArray, Int64Array
from tidegate.cache import Candidate, Quote
from tidegate.request import Milestones, Phase, Request, RequestOutput
from tidegate.scheduling.drafts import Drafts

WaitReason = Literal["tokens", "seats", "partial_prefills", "pages", "headroom", "reservation"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A request that owns nothing: its cache candidate and what it has behind it.

    ``since`` counts the plans with admissions before it was submitted, at clock time ``submitted_s``.
    """

    request: Request
    candidate: Candidate
    order: int
    max_length: int
    phase: Phase
    milestones: Milestones
    since: int
    submitted_s: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions ``start`` to ``end`` of a running prefill."""

    row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """A waiting request's first chunk, beginning behind what it reuses.

    ``overtaken`` are the requests before it in the queue that could not run. It was held in ``held_passes`` plans.
    """

    waiting: Waiting
    start: int
    end: int
    overtaken: tuple[str, ...] = ()
    held_passes: int = 0

    @property
    def is_first(self) -> bool:
        """Whether nothing of the request was computed before: only such an admission may be held back."""
        return self.waiting.phase is Phase.WAITING


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the first request that could not go on has to wait. ``shortage`` is in pages, per pool group."""

    request_id: str
    reason: WaitReason
    shortage: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stall:
    """Work waits, nothing runs and nothing is in flight: who waits, and per pool group what is there and what is held.

    With nothing running here, ``held`` pages are those of sequences that somebody else made in the same cache.
    """

    wait: Wait
    num_waiting: int
    pool_pages: tuple[int, ...]
    supply: tuple[int, ...]
    held: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.num_waiting} requests wait, first {self.wait.request_id!r} for {self.wait.reason}: "
            f"short of {self.wait.shortage} pages per pool group, {self.supply} of {self.pool_pages} could be had, "
            f"sequences outside this scheduler hold {self.held}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One step. Order of its sequences: ``decodes``, ``chunks``, ``admissions``, as in ``quote``.

    ``victims`` are suspended by the step. ``exhausted`` rows can never go on and end with ``capacity``; such a plan
    computes nothing. ``deferred`` wait for a prefix somebody is computing; ``held`` were planned and then held back by
    balancing or batch waiting. ``drafts`` are guesses that ``decodes`` compute besides; None: nobody was asked for any.
    ``is_short``: something that runs was left out for want of pages. ``timer_s``: nothing runs, and the plan is to be
    looked at again at this clock time.

    ``seen`` (uncached tokens of requests that were looked at and have to wait) and ``batch_waits`` are for
    ``Scheduler.note``.
    """

    quote: Quote
    decodes: Int64Array
    chunks: tuple[Chunk, ...] = ()
    admissions: tuple[Admission, ...] = ()
    victims: tuple[int, ...] = ()
    exhausted: tuple[int, ...] = ()
    deferred: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    is_short: bool = False
    wait: Wait | None = None
    stall: Stall | None = None
    timer_s: float | None = None
    seen: tuple[tuple[Waiting, int], ...] = ()
    batch_waits: int = 0
    drafts: Drafts | None = None

    @property
    def num_decode_tokens(self) -> int:
        """Tokens of ``decodes``, one each and their drafts."""
        return len(self.decodes) + (0 if self.drafts is None else self.drafts.num_tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens the step computes, exactly."""
        prefill = sum(chunk.end - chunk.start for chunk in self.chunks)
        return self.num_decode_tokens + prefill + sum(entry.end - entry.start for entry in self.admissions)

    @property
    def num_sequences(self) -> int:
        """Sequences the step computes."""
        return len(self.decodes) + len(self.chunks) + len(self.admissions)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to reserve."""
        return self.num_sequences == 0 and not self.victims

    @property
    def most_held_passes(self) -> int:
        """Most plans in which any first chunk of this one was held before."""
        return max((entry.held_passes for entry in self.admissions if entry.is_first), default=0)

    def decode_ends(self, capacity: Int64Array) -> Int64Array:
        """Return where the step of each of ``decodes`` ends, from the capacities of all rows before it."""
        return decode_ends(capacity, self.decodes, self.drafts)

    def decisions(self) -> tuple[object, ...]:
        """Return the decisions as plain values, equal for equal plans."""
        return (
            tuple(self.decodes.tolist()),
            () if self.drafts is None else tuple(map(tuple, self.drafts.tokens.tolist())),
            tuple((chunk.row, chunk.start, chunk.end) for chunk in self.chunks),
            tuple((e.waiting.request.request_id, e.start, e.end, e.overtaken) for e in self.admissions),
            self.victims,
            self.exhausted,
            self.deferred,
            self.held,
            self.timer_s,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A plan under way. ``is_computed`` is False for sequences that ended after they were planned.

    ``drafts``, of all rows, is None when there are none.
    """

    rows: Int64Array
    starts: Int64Array
    ends: Int64Array
    samples: BoolArray
    is_computed: BoolArray
    is_whole: bool
    samples_all: bool
    num_admitted: int
    drafts: Drafts | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a step brought: tokens drawn, and the requests that ended with it."""

    num_tokens: int = 0
    finished: tuple[RequestOutput, ...] = ()


def decode_ends(capacity: Int64Array, rows: Int64Array, drafts: Drafts | None) -> Int64Array:
    """Return where the step of decoding rows ends, from the capacities of all rows before it."""
    ends = capacity[rows] + 1
    return ends if drafts is None else ends + drafts.counts
