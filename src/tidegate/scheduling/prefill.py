"""The prefill half of a plan: next chunks of running prompts, then admissions in queue order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tidegate.base import Int64Array, InternalError
from tidegate.cache import KVCacheManager, Quote
from tidegate.request import Phase, Request, RunningSequences, WaitingQueue
from tidegate.scheduling.allowance import Allowance
from tidegate.scheduling.budget import StepBudget, chunk_end, fit_chunk
from tidegate.scheduling.config import SchedulerConfig
from tidegate.scheduling.drafting import Drafter
from tidegate.scheduling.drafts import Drafts
from tidegate.scheduling.memory import Memory
from tidegate.scheduling.plan import Admission, Chunk, Wait, Waiting, WaitReason, decode_ends
from tidegate.scheduling.policy import in_order, prefill_order
from tidegate.scheduling.shared_prefix import PrefixOwners

_MOST_SCORED = 256
"""Prompt tokens that are scored in one chunk: each takes a row of logits as long as the vocabulary."""
_LACKS_PAGES: tuple[WaitReason, ...] = ("pages", "headroom", "reservation")


@dataclass(frozen=True, slots=True, eq=False)
class PlanView:
    """What deciders read: nobody writes through it. ``parked`` admissions were held back and kept their pages."""

    manager: KVCacheManager
    sequences: RunningSequences
    queue: WaitingQueue[Waiting]
    memory: Memory
    config: SchedulerConfig
    allowance: Allowance
    pool_pages: tuple[int, ...]
    align: int
    parked: tuple[Admission, ...] = ()
    drafter: Drafter | None = None


class PrefillDraft:
    """Adds prefills to a quote that already holds the decodes. Lives for one plan."""

    def __init__(
        self,
        view: PlanView,
        quote: Quote,
        active: Int64Array,
        decodes: Int64Array,
        victims: tuple[int, ...],
        *,
        drafts: Drafts | None = None,
    ) -> None:
        config, sequences = view.config, view.sequences
        self.quote = quote
        self.chunks: list[Chunk] = []
        self.admissions: list[Admission] = []
        self.parked: list[Admission] = []
        self.is_short = False
        self.deferred: list[str] = []
        self.wait: Wait | None = None
        self.seen: list[tuple[Waiting, int]] = []
        self._view = view
        self._active = active
        self._decodes = decodes
        self._drafts = drafts
        self._victims = victims
        self._budget = StepBudget(
            tokens=config.max_num_tokens - len(decodes) - (0 if drafts is None else drafts.num_tokens),
            seats=min(config.max_batch_size - len(active), len(sequences.is_used) - sequences.num_used),
            partials=config.max_partial_prefills,
        )
        self._owners = PrefixOwners(view.manager.match_unit)
        self._left: Int64Array | None = None

    def continue_running(self) -> None:
        """Give each running prefill its next chunk, in policy order."""
        view = self._view
        capacity, target = view.manager.capacity, view.sequences.target
        rows = self._active[view.manager.history[self._active] < target[self._active]]
        for row in prefill_order(view.sequences, rows, view.config.policy).tolist():
            start, goal = int(capacity[row]), int(target[row])
            if start < goal:
                end = self._continue(row, start, goal)
                self._budget.spend(end - start, is_partial=end < goal)
            self._own(row, goal)  # also while its last chunk is in flight: nothing of that is published yet

    def _continue(self, row: int, start: int, goal: int) -> int:
        """Plan one running prefill's chunk and return its end; ``start`` when it has to wait."""
        request = self._view.sequences.request(row)
        request_id = request.request_id
        wanted = self._chunk_end(request, start, goal)
        if wanted == start:
            self._note(request_id, "tokens")
            return start
        is_alone = len(self._active) == 1
        rows = np.array([row], dtype=np.int64)
        end = fit_chunk(
            start,
            wanted,
            self._view.align,
            price=lambda at: self.quote.add(rows, np.array([at], dtype=np.int64)),
            can_wait=lambda at: not is_alone and self._view.manager.plan.chunk_fits_alone(start, at),
        )
        if end is None:
            self.is_short = True
            self._note(request_id, "pages", self.quote.shortage)
            return start
        self.chunks.append(Chunk(row, start, end))
        return end

    def admit_waiting(self) -> None:
        """Admit from the queue in order.

        Those deferred for a shared prefix are passed over, and those that lack pages as often as they may be overtaken.
        Any other that has to wait stops all behind it.
        """
        self._take_parked()
        if self.wait is not None:
            return
        view, config = self._view, self._view.config
        probes_left = self._budget.seats + config.extra_probes
        passed: tuple[str, ...] = ()
        parked = {entry.waiting.request.request_id for entry in view.parked}
        passes_left = config.max_overtakes
        starvation = config.context_starvation_iterations
        for waiting in in_order(view.queue, config.policy, view.memory.admitting_plans, starvation):
            if waiting.request.request_id in parked:
                continue
            if probes_left <= 0:
                return
            probes_left -= 1
            if self._budget.seats <= 0:
                self._note(waiting.request.request_id, "seats")
                return
            reused = view.manager.lookup(waiting.candidate)
            if self._must_defer(waiting, reused):
                self.deferred.append(waiting.request.request_id)
            else:
                reason = self._admit(waiting, reused, passed)
                if reason is None:
                    passes_left -= bool(passed)
                else:
                    passes_left = min(passes_left, self._passes_left(waiting, reason))
                    passed += (waiting.request.request_id,)
                    self.seen.append((waiting, waiting.candidate.num_tokens - reused))
            if passed and (passes_left <= 0 or len(passed) > config.extra_probes or not self._has_room()):
                return

    def _take_parked(self) -> None:
        """Plan the admissions that have their pages already, as far as seats and tokens go."""
        budget, held_passes = self._budget, self._view.memory.held_passes
        for entry in self._view.parked:
            request_id, num_tokens = entry.waiting.request.request_id, entry.end - entry.start
            is_partial = entry.end < entry.waiting.candidate.num_tokens
            if budget.seats <= 0 or budget.tokens < num_tokens or (is_partial and budget.partials <= 0):
                return
            self.parked.append(replace(entry, held_passes=held_passes.get(request_id, 0)))
            budget.seats -= 1
            budget.spend(num_tokens, is_partial=is_partial)
            self._owners.add(entry.waiting.request, entry.waiting.candidate.tokens, entry.start)

    def _passes_left(self, waiting: Waiting, reason: WaitReason) -> int:
        """Return how often a request that waits may still be overtaken: one that was suspended never is."""
        if reason not in _LACKS_PAGES or waiting.phase is not Phase.WAITING:
            return 0
        overtakes = self._view.memory.overtakes.get(waiting.request.request_id, 0)
        return self._view.config.max_overtakes - overtakes

    def _has_room(self) -> bool:
        """Tell whether any admission could find a page: each takes one in every pool group."""
        leave = self._to_leave() if self._is_busy() else 0
        return bool((np.array(self.quote.supply) > leave).all())

    def _is_busy(self) -> bool:
        return len(self._active) + len(self.admissions) + len(self.parked) > 0

    def _admit(self, waiting: Waiting, start: int, passed: tuple[str, ...]) -> WaitReason | None:
        """Plan a waiting request's first chunk past those that could not run; or return why it must wait."""
        view, candidate, request_id = self._view, waiting.candidate, waiting.request.request_id
        goal = candidate.num_tokens
        wanted = self._chunk_end(waiting.request, start, goal)
        if wanted == start:
            return self._note(request_id, "tokens")
        if wanted < goal and self._budget.partials <= 0:
            return self._note(request_id, "partial_prefills")
        is_busy = self._is_busy()
        leave = view.allowance.gated(waiting, self._to_leave()) if is_busy else None
        if leave is not None and (self.quote.supply - view.allowance.least(waiting, start, wanted) < leave).any():
            return self._note(request_id, view.allowance.reason)
        end = fit_chunk(
            start,
            wanted,
            view.align,
            price=lambda at: self.quote.admit(candidate, at),
            can_wait=lambda at: (
                (is_busy or self._is_held_elsewhere()) and view.manager.plan.chunk_fits_alone(start, at)
            ),
        )
        if end is None:
            return self._note(request_id, "pages", self.quote.shortage)
        is_short = leave is not None and bool(
            (self.quote.supply - view.allowance.claim(waiting, start, end) < leave).any()
        )
        if is_short or (end < goal and self._budget.partials <= 0):
            self._price_again()
            return self._note(request_id, view.allowance.reason if is_short else "partial_prefills")
        self.admissions.append(Admission(waiting, start, end, passed, view.memory.held_passes.get(request_id, 0)))
        self._left = None
        self._budget.seats -= 1
        self._budget.spend(end - start, is_partial=end < goal)
        self._owners.add(waiting.request, candidate.tokens, start)
        return None

    def _is_held_elsewhere(self) -> bool:
        """Tell, while nothing of ours is active, whether sequences outside this scheduler hold pages."""
        return self._view.manager.quote().supply != self._view.pool_pages

    def _chunk_end(self, request: Request, start: int, goal: int) -> int:
        """Return where a chunk would end if pages were no matter: at the budget, or at the first declared length."""
        view = self._view
        most = self._most_tokens()
        if request.prompt_logprobs:
            most = min(most, max(_MOST_SCORED // view.align, 1) * view.align)
        end = chunk_end(start, goal, most, view.align)
        if not view.manager.has_checkpoints or request.access != "read_write" or request.prompt_logprobs:
            return end  # nothing would be kept there, or all of it is anyway
        unit = view.manager.match_unit
        borders = (length // unit * unit for length in request.declared)
        return min((border for border in borders if start < border < end), default=end)

    def _most_tokens(self) -> int:
        longest = self._view.config.max_chunk_tokens
        return self._budget.tokens if longest is None else min(self._budget.tokens, longest)

    def _to_leave(self) -> Int64Array:
        """Return pages that any admission must leave, as the plan stands."""
        if self._left is None:
            starts = [entry.start for entry in (*self.parked, *self.admissions)]
            self._left = self._view.allowance.to_leave(self._active, starts, *self._lengths())
        return self._left

    def _lengths(self) -> tuple[Int64Array, Int64Array]:
        """Return capacity after the step, and the most it will ever be, of all sequences active so far."""
        view = self._view
        now = view.manager.capacity.copy()
        now[self._decodes] = decode_ends(now, self._decodes, self._drafts)
        for chunk in self.chunks:
            now[chunk.row] = chunk.end
        entering = (*self.parked, *self.admissions)
        added = np.array([entry.end for entry in entering], dtype=np.int64)
        added_most = np.array([entry.waiting.max_length - 1 for entry in entering], dtype=np.int64)
        most = view.sequences.max_length[self._active] - 1
        return np.concatenate((now[self._active], added)), np.concatenate((most, added_most))

    def _must_defer(self, waiting: Waiting, reused: int) -> bool:
        return self._shares() and self._owners.is_computing(waiting.request, waiting.candidate.tokens, reused)

    def _own(self, row: int, goal: int) -> None:
        if self._shares():
            view = self._view
            tokens = view.sequences.tokens[row, :goal]
            self._owners.add(view.sequences.request(row), tokens, int(view.manager.history[row]))

    def _shares(self) -> bool:
        cache = self._view.manager.config
        return self._view.config.share_prefixes and cache.enable_prefix_caching and cache.publish == "full_blocks"

    def _note(self, request_id: str, reason: WaitReason, shortage: tuple[int, ...] = ()) -> WaitReason:
        """Keep the first wait of the plan; return the reason."""
        if self.wait is None:
            self.wait = Wait(request_id, reason, shortage)
        return reason

    def _price_again(self) -> None:
        """Replace the quote by one without its last admission: quotes are extended, never cut."""
        quote = self._view.manager.quote()
        if self._victims:
            quote.suspend(np.array(self._victims, dtype=np.int64))
        ends = decode_ends(self._view.manager.capacity, self._decodes, self._drafts)
        fits = not len(self._decodes) or quote.add(self._decodes, ends)
        for chunk in self.chunks:
            fits &= quote.add(np.array([chunk.row], dtype=np.int64), np.array([chunk.end], dtype=np.int64))
        for entry in self.admissions:
            fits &= quote.admit(entry.waiting.candidate, entry.end)
        if not fits:
            raise InternalError("a plan that was priced once cannot be priced again")
        self.quote = quote
