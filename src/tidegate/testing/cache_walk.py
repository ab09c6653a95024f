"""One random life of a cache: a manager under test, what it should hold, and what has been covered.

The rules in ``cache_rules`` act on a walk; a seed or Hypothesis chooses. Every action ends in ``check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tidegate.base import InternalError, Retention
from tidegate.cache import Candidate, KVCacheConfig, KVCacheManager, ReuseScope
from tidegate.testing.cache_model import GroupRule, scratch_blocks
from tidegate.testing.choices import Choose, chance, one_of
from tidegate.testing.driver import OpenStep, StepDriver
from tidegate.testing.fake_engine import FakeEngine
from tidegate.testing.layouts import build_layout, build_prompt, build_texts
from tidegate.testing.running import Running
from tidegate.testing.table_check import check_owned, check_sharing

VOCAB_SIZE = 3
SCOPES = (ReuseScope(), ReuseScope(salt="a"), ReuseScope(lora_id="a"))
_AMPLE_BYTES = 1 << 19


def build_config(choose: Choose) -> KVCacheConfig:
    """Choose a model and the options of a small cache; its pools are ample."""
    layout = build_layout(choose)
    has_state = any(spec.retention is Retention.STATE for spec in layout.layers)
    return KVCacheConfig(
        layers=layout.layers,
        device_bytes=_AMPLE_BYTES,
        max_sequences=choose(3, 6),
        max_seq_len=one_of(choose, (48, 32, 64)),
        tokens_per_block=layout.tokens_per_block,
        max_open_steps=one_of(choose, (2, 2, 3, 1)),
        max_rewind_len=0 if has_state else one_of(choose, (0, 2, 4, 8)),
        max_chunk_tokens=48,
        swa_scratch_reuse=not chance(choose, 15),
        enable_partial_reuse=not chance(choose, 25),
        enable_prefix_caching=not chance(choose, 5),
        window_checkpoints=one_of(choose, ("every_chunk", "every_chunk", "every:8", "declared")),
        publish=one_of(choose, ("full_blocks", "full_blocks", "full_blocks", "at_end", "declared", "none")),
        separate_pools=chance(choose, 20),
    )


def tight_pools(choose: Choose, config: KVCacheConfig) -> KVCacheConfig:
    """Size each pool group for one to three of the longest sequences its groups can hold."""
    ample = KVCacheManager(config, with_memory=False)
    slots = [0] * len({group.pool_group for group in ample.groups})
    for group in ample.groups:
        blocks = -(-config.max_seq_len // group.block_tokens)
        slots[group.pool_group] += blocks + 3
    percent = choose(100, 300)
    return replace(config, device_bytes=None, pool_slots=tuple(count * percent // 100 for count in slots))


class CacheWalk:
    """A manager, its driver, requests waiting, and the coverage of what was done to them."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.config = tight_pools(choose, build_config(choose))
        self.manager = KVCacheManager(self.config)
        self.engine = FakeEngine(self.config.layers, vocab_size=VOCAB_SIZE)
        self.driver = StepDriver(self.manager, self.engine)
        self.rules = group_rules(self.manager)
        self.texts = build_texts(choose, 4, self.config.max_seq_len, VOCAB_SIZE)
        self.waiting: list[Candidate] = []
        self.counts: Counter[str] = Counter()
        self._computed: set[tuple[int, tuple[int, ...]]] = set()

    @property
    def has_state(self) -> bool:
        """Tell whether some group keeps a running state, which cannot be cut back."""
        return any(rule.is_state for rule in self.rules)

    @property
    def scope(self) -> ReuseScope:
        """A scope of the walk's choice, mostly the plain one."""
        return one_of(self.choose, SCOPES) if chance(self.choose, 20) else SCOPES[0]

    @property
    def idle(self) -> list[Running]:
        """Running sequences without an open step."""
        return [running for running in self.driver.running.values() if not running.model.steps]

    def growable(self) -> list[Running]:
        """Return running sequences that can take one more step."""
        # A step whose drafts were rejected takes the one after it along; a third would then have no legal end.
        most = min(self.config.max_open_steps, 2) if self.config.max_rewind_len else self.config.max_open_steps
        everyone = self.driver.running.values()
        ready = [r for r in everyone if len(r.model.steps) < most and not r.is_cut]
        return [r for r in ready if r.model.capacity < self.limit(r)]

    def limit(self, running: Running) -> int:
        """Return how far a sequence's next step may reach, drafts included."""
        drafts = 0 if self.has_state else self.config.max_rewind_len
        return min(running.furthest_end + drafts, self.config.max_seq_len)

    def prompt(self) -> list[int]:
        """Choose a prompt that leaves room to generate."""
        return build_prompt(self.choose, self.texts, self.config.max_seq_len - 4, VOCAB_SIZE)

    def see(self, step: OpenStep) -> None:
        """Count what a dispatched step covers."""
        self.counts["copies"] += bool(step.pages.copies)
        self.counts["overlap"] += any(len(sequence.model.steps) > 1 for sequence in step.sequences)
        self.counts["scratch"] += any(
            scratch_blocks(*running.model.steps[-1], rule, self.config.max_rewind_len)
            for running in step.sequences
            for rule in self.rules
        )

    def note_computed(self) -> None:
        """Remember every settled prefix: only these may ever be reused."""
        for running in self.driver.running.values():
            tokens = tuple(running.model.tokens[: running.model.history])
            while tokens and (running.salt, tokens) not in self._computed:
                self._computed.add((running.salt, tokens))
                tokens = tokens[:-1]

    def check_reuse(self, candidate: Candidate) -> None:
        """Raise if a request would reuse what nobody computed in its scope, or all of its prompt."""
        tokens, reused = tuple(candidate.tokens.tolist()), self.manager.lookup(candidate)
        if candidate.access != "none" and reused != self.manager.probe(tokens, candidate.scope).reused:
            raise InternalError("a candidate and a probe of the same prompt disagree")
        salt = self.driver.salt_of(candidate.scope)
        if reused >= len(tokens) or (reused and (salt, tokens[:reused]) not in self._computed):
            raise InternalError(f"would reuse {reused} of {tokens}, which was never computed in {candidate.scope}")

    def wait(self, suspended: Sequence[Candidate]) -> None:
        """Queue suspended sequences again, but for those that are as long as they may become."""
        fitting = [candidate for candidate in suspended if candidate.num_tokens <= self.config.max_seq_len]
        for candidate in fitting:
            self.check_reuse(candidate)
        self.waiting += fitting

    def observe(self) -> tuple[object, ...]:
        """Return everything that must not change when something is refused or rolled back."""
        reused = [self.manager.probe(waiting.tokens, waiting.scope).reused for waiting in self.waiting]
        return *self.observe_rows(sorted(self.driver.running)), reused

    def observe_rows(self, rows: Sequence[int]) -> tuple[object, ...]:
        """Return all that outsiders see of some rows: cursors and tables."""
        cursors = (self.manager.history[rows], self.manager.capacity[rows], self.manager.num_open[rows])
        tables = [arena[rows] for arena in self.driver.arenas]
        return rows, [column.tolist() for column in cursors], [table.tolist() for table in tables]

    def observe_owned(self, rows: Sequence[int]) -> tuple[object, ...]:
        """Return cursors, and which blocks own a page: all that must survive when a dispatched step is aborted."""
        cursors = (self.manager.history[rows], self.manager.capacity[rows], self.manager.num_open[rows])
        owned = [(arena[rows] >= 0).tolist() for arena in self.driver.arenas]
        return rows, [column.tolist() for column in cursors], owned

    def check_unchanged(self, before: tuple[object, ...], what: str) -> None:
        """Raise if what ``observe`` returns is not what it was."""
        after = self.observe()
        if after != before:
            raise InternalError(f"{what} changed the cache: {before} became {after}")

    def check(self) -> None:
        """Raise unless the cache's own audit and the model agree with its state."""
        self.manager.audit()
        running = list(self.driver.running.values())
        for sequence in running:
            model, row = sequence.model, sequence.row
            found = (self.manager.history[row], self.manager.capacity[row], self.manager.num_open[row])
            if found != (model.history, model.capacity, len(model.steps)):
                raise InternalError(f"row {row}: cursors {found}, not H={model.history} C={model.steps}")
            for group, (rule, arena) in enumerate(zip(self.rules, self.driver.arenas, strict=False)):
                check_owned(sequence, group, rule, arena)
        if self.driver.arenas:
            pool_groups = [group.pool_group for group in self.manager.groups]
            self.counts["shared"] += check_sharing(running, self.rules, pool_groups, self.driver.arenas) > 0


def group_rules(manager: KVCacheManager) -> tuple[GroupRule, ...]:
    """Return what the model needs to know of each of a manager's groups."""
    return tuple(
        GroupRule(
            block_tokens=group.block_tokens,
            window=group.window,
            sink_tokens=group.sink_tokens,
            uses_scratch=group.scratch_per_slot > 0,
            is_state=group.retention is Retention.STATE,
        )
        for group in manager.groups
    )
