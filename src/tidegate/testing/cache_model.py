"""A cache in plain sets and dictionaries, decided position by position: slow, and obviously right.

Why here: the cache answers by formulas on arrays. This says what the answers mean, without one formula of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

Tokens = tuple[int, ...]
Span = tuple[int, int]
"""The positions an open step computes: it keeps its begin when the step before it settles short of it."""


@dataclass(frozen=True, slots=True)
class GroupRule:
    """What a layer group keeps: everything (``window`` None), a window and sinks, or one running state."""

    block_tokens: int
    window: int | None = None
    sink_tokens: int = 0
    uses_scratch: bool = False
    is_state: bool = False


def reads(query: int, position: int, rule: GroupRule) -> bool:
    """Tell whether the query at ``query`` attends to ``position``."""
    if position > query:
        return False
    if rule.window is None:
        return True
    return query - position < rule.window or position < rule.sink_tokens


def positions_of(block: int, rule: GroupRule) -> range:
    """Return the positions that lie in a block."""
    return range(block * rule.block_tokens, (block + 1) * rule.block_tokens)


@lru_cache(maxsize=1 << 16)
def is_stale(block: int, history: int, rule: GroupRule) -> bool:
    """Tell whether no query at ``history`` or later reads anything of the block."""
    if rule.window is None:
        return False
    first, last = positions_of(block, rule)[0], positions_of(block, rule)[-1]
    queries = range(history, max(history, last) + rule.window + 1)
    return not any(reads(query, position, rule) for position in range(first, last + 1) for query in queries)


def blocks_below(end: int, rule: GroupRule) -> set[int]:
    """Return the blocks that hold a position below ``end``."""
    if rule.is_state:
        return {0} if end else set()
    return {position // rule.block_tokens for position in range(end)}


@lru_cache(maxsize=1 << 16)
def scratch_blocks(previous: int, end: int, rule: GroupRule, max_rewind_len: int) -> frozenset[int]:
    """Return the blocks that the step first writes, and that nothing reads once it is over, however far it is cut."""
    if not rule.uses_scratch:
        return frozenset()
    begun = {block for block in blocks_below(end, rule) if positions_of(block, rule)[0] >= previous}
    return frozenset(block for block in begun if is_stale(block, max(0, end - max_rewind_len), rule))


@lru_cache(maxsize=1 << 16)
def live_blocks(settled: int, capacity: int, steps: tuple[Span, ...], rule: GroupRule, rewind: int) -> frozenset[int]:
    """Return the blocks that own a page: what may still be read below ``capacity``, less the steps' scratch."""
    live = {block for block in blocks_below(capacity, rule) if not is_stale(block, settled, rule)}
    return frozenset(live.difference(*(scratch_blocks(begin, end, rule, rewind) for begin, end in steps)))


@dataclass(slots=True)
class ModelSequence:
    """A running sequence: its tokens, its cursors, and how they may move."""

    tokens: list[int]
    num_prompt: int
    history: int
    max_rewind_len: int
    settled: int = 0
    steps: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settled = self.history

    @property
    def capacity(self) -> int:
        """The end of the newest open step, or the history."""
        return self.steps[-1][1] if self.steps else self.history

    def owned(self, rule: GroupRule) -> frozenset[int]:
        """Return the blocks that own a page now."""
        return live_blocks(self.settled, self.capacity, tuple(self.steps), rule, self.max_rewind_len)

    def open(self, end: int) -> None:
        """Dispatch a step up to ``end``."""
        assert end >= self.capacity, f"a step cannot end at {end}, below {self.capacity}"
        self.steps.append((self.capacity, end))

    def can_settle(self, history: int, rules: Sequence[GroupRule]) -> bool:
        """Tell whether the oldest open step may settle there."""
        begin, end = self.steps[0]
        if not self.history <= history <= end:
            return False
        if len(self.steps) > 1 and history < end - self.max_rewind_len:
            return False
        if history == self.history or history == end:
            return True
        if any(rule.is_state for rule in rules):
            return False
        settled = max(self.settled, min(history, end - self.max_rewind_len))
        return all(
            is_stale(block, settled, rule)
            for rule in rules
            for block in scratch_blocks(begin, end, rule, self.max_rewind_len)
            if positions_of(block, rule)[0] < history
        )

    def settle(self, history: int) -> None:
        """Settle the oldest open step at ``history``."""
        _, end = self.steps.pop(0)
        if history != self.history:
            self.settled = max(self.settled, min(history, end - self.max_rewind_len))
        self.history = history

    def can_rewind(self, history: int, rules: Sequence[GroupRule]) -> bool:
        """Tell whether every block that a query at ``history`` or later reads, and that was written, is still there."""
        return 0 <= history <= self.history and all(
            self.owned(rule) >= {block for block in blocks_below(history, rule) if not is_stale(block, history, rule)}
            for rule in rules
        )

    def rewind(self, history: int) -> None:
        """Go back to ``history`` and forget the tokens from there on, but for the prompt and the next to compute."""
        assert not self.steps and history < self.history
        self.history = history
        self.settled = min(self.settled, history)
        del self.tokens[max(history + 1, self.num_prompt) :]


class ModelTree:
    """What is cached, by presence: a block is its whole token prefix, in one scope and one group."""

    def __init__(self, rules: Sequence[GroupRule], unit: int) -> None:
        self._rules = tuple(rules)
        self._unit = unit
        self._blocks: dict[tuple[Hashable, int, int], set[Tokens]] = {}
        self._texts: dict[Hashable, set[Tokens]] = {}

    def publish(self, scope: Hashable, tokens: Sequence[int], group: int, block: int) -> None:
        """Cache one block of a group as far as ``tokens`` reach; of a state group, the state after all of them."""
        rule = self._rules[group]
        end = len(tokens) if rule.is_state else min(len(tokens), (block + 1) * rule.block_tokens)
        self._blocks.setdefault((scope, group, block), set()).add(tuple(tokens[:end]))
        self._texts.setdefault(scope, set()).add(tuple(tokens[:end]))

    def publish_full(self, scope: Hashable, tokens: Sequence[int]) -> None:
        """Cache all blocks of the groups that keep everything."""
        for group, rule in enumerate(self._rules):
            if rule.window is None and not rule.is_state:
                for block in blocks_below(len(tokens), rule):
                    self.publish(scope, tokens, group, block)

    def keep_checkpoint(self, scope: Hashable, tokens: Sequence[int]) -> None:
        """Cache what the other groups need for the query after ``tokens``."""
        for group, rule in enumerate(self._rules):
            if rule.is_state:
                self.publish(scope, tokens, group, 0)
            elif rule.window is not None:
                for block in _read_blocks(len(tokens), rule):
                    self.publish(scope, tokens, group, block)

    def raw_match(self, scope: Hashable, tokens: Sequence[int]) -> int:
        """Return how many leading tokens some cached text shares."""
        return max((_shared(text, tokens) for text in self._texts.get(scope, ())), default=0)

    def longest_reuse(self, scope: Hashable, tokens: Sequence[int], *, partial: bool = True) -> int:
        """Return the largest reusable length: the raw match or a match unit's border, one token left to compute."""
        raw = min(self.raw_match(scope, tokens), len(tokens) - 1)
        borders = set(range(0, raw + 1, self._unit))
        candidates = borders | {raw} if partial else borders
        return max(length for length in candidates if self._can_reuse(scope, tuple(tokens[:length])))

    def _can_reuse(self, scope: Hashable, prefix: Tokens) -> bool:
        return not prefix or all(self._has_group(scope, prefix, group) for group in range(len(self._rules)))

    def _has_group(self, scope: Hashable, prefix: Tokens, group: int) -> bool:
        rule = self._rules[group]
        if rule.is_state:
            return prefix in self._blocks.get((scope, group, 0), ())
        return all(self._has_block(scope, prefix, group, block) for block in _read_blocks(len(prefix), rule))

    def _has_block(self, scope: Hashable, prefix: Tokens, group: int, block: int) -> bool:
        content = prefix[: (block + 1) * self._rules[group].block_tokens]
        held = self._blocks.get((scope, group, block), ())
        return any(text[: len(content)] == content for text in held)


def _read_blocks(query: int, rule: GroupRule) -> set[int]:
    """Return the blocks below ``query`` that the query there reads."""
    return {position // rule.block_tokens for position in range(query) if reads(query, position, rule)}


def _shared(text: Tokens, tokens: Sequence[int]) -> int:
    count = 0
    for ours, theirs in zip(text, tokens, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
