"""How many slots each pool group gets, and what fits: one set of formulas for floors, planner and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from tidegate.base import ConfigError, Retention
from tidegate.cache.config import KVCacheConfig
from tidegate.cache.groups import Grouping, LayerGroup
from tidegate.cache.ranges import Rule, ceil_div, scratch, scratch_slots, stale, window_peak


def match_unit(config: KVCacheConfig, groups: Sequence[LayerGroup]) -> int:
    """Smallest length that is a block border in every group, or the coarser one asked for."""
    smallest = least_chunk(groups)
    if all(g.retention is Retention.STATE for g in groups):
        smallest = config.tokens_per_block
    unit = config.reuse_unit_tokens or smallest
    if unit % smallest:
        raise ConfigError(f"reuse_unit_tokens={unit} must be a multiple of {smallest}, a block border in every group")
    return unit


def least_chunk(groups: Sequence[LayerGroup]) -> int:
    """Smallest block-aligned prefill chunk."""
    return lcm(*(g.block_tokens for g in groups if g.retention is not Retention.STATE), 1)


def decode_pages(group: LayerGroup, num_tokens: int) -> int:
    """Most pages a sequence that grows token by token up to ``num_tokens`` owns at once."""
    rule = group.rule
    if rule.window is None:
        return ceil_div(num_tokens, rule.block_tokens)
    peak = window_peak(rule.window, rule.block_tokens, 1, rule.max_rewind_len, rule.sink_blocks)
    return min(ceil_div(num_tokens, rule.block_tokens), peak)


def step_pages(rule: Rule, begin: int, end: int) -> int:
    """Pages a sequence that has settled ``begin`` tokens owns while it computes up to ``end``, scratch included."""
    gone, dead = stale(begin, rule), scratch(begin, end, rule)
    owned = ceil_div(end, rule.block_tokens) - (gone[1] - gone[0]) - (dead[1] - dead[0])
    return owned + scratch_slots(dead, rule)


def chunk_pages(group: LayerGroup, num_tokens: int, chunk: int) -> int:
    """Most pages a prefill to ``num_tokens`` in block-aligned chunks of ``chunk`` owns at once, scratch included."""
    rule = group.rule
    if rule.window is None:
        return ceil_div(num_tokens, rule.block_tokens)
    whole = ceil_div(num_tokens, rule.block_tokens)
    block = rule.block_tokens
    chunk = max(chunk // block * block, block)
    start = min(max(rule.window + chunk, chunk), max(0, num_tokens - chunk)) // block * block
    peak = 0
    for begin, end in ((0, min(chunk, num_tokens)), (start, min(start + chunk, num_tokens))):
        peak = max(peak, step_pages(rule, begin, end))
    return min(peak, whole) if not rule.scratch_per_slot else peak


def pages_alone(grouping: Grouping, num_tokens: int, chunk: int) -> list[int]:
    """Pages per pool group that one sequence needs to reach ``num_tokens``, prefilled in chunks of ``chunk``."""
    needs = [0] * grouping.num_pool_groups
    for group in grouping.groups:
        needs[group.pool_group] += max(decode_pages(group, num_tokens), chunk_pages(group, num_tokens, chunk))
    return needs


def shared_chunk_pages(grouping: Grouping, chunk: int) -> list[int]:
    """Pages per pool group to set aside, once for the engine, for the prefill chunk in flight."""
    extra = [0] * grouping.num_pool_groups
    for group in grouping.groups:
        if group.retention is Retention.WINDOW:
            whole = 2 * (group.window or 1) + 2 * chunk + group.sink_tokens
            extra[group.pool_group] += max(0, chunk_pages(group, whole, chunk) - decode_pages(group, whole))
    return extra


def concurrency(grouping: Grouping, slots: Sequence[int], seq_len: int, chunk: int) -> float:
    """How many sequences of ``seq_len`` tokens the slots hold at once, one prefill chunk in flight beside them."""
    each = [0] * grouping.num_pool_groups
    for group in grouping.groups:
        each[group.pool_group] += decode_pages(group, seq_len)
    extra = shared_chunk_pages(grouping, min(chunk, seq_len))
    return min(max(0, have - more) / need for have, more, need in zip(slots, extra, each, strict=True) if need)


def floors(config: KVCacheConfig, grouping: Grouping) -> list[int]:
    """Least slots per pool group with which one sequence can run at all."""
    least = [0] * grouping.num_pool_groups
    chunk = least_chunk(grouping.groups)
    for group in grouping.groups:
        if group.retention is Retention.STATE:
            least[group.pool_group] += 2
        elif group.retention is Retention.FULL:
            least[group.pool_group] += 1
        else:
            tokens = min(config.max_seq_len, 2 * ((group.window or 1) + chunk) + group.sink_tokens)
            least[group.pool_group] += max(decode_pages(group, tokens), chunk_pages(group, tokens, chunk))
    return least


def split_quota(config: KVCacheConfig, grouping: Grouping) -> list[int]:
    """Slots per pool group: the explicit ones, or the byte quota split in the proportions of a typical step."""
    least = floors(config, grouping)
    slot_bytes = [0] * grouping.num_pool_groups
    for group in grouping.groups:
        slot_bytes[group.pool_group] = sum(group.row_bytes)
    if config.pool_slots is not None:
        if len(config.pool_slots) != grouping.num_pool_groups:
            raise ConfigError(
                f"pool_slots: {len(config.pool_slots)} numbers for {grouping.num_pool_groups} pool groups"
            )
        slots = list(config.pool_slots)
    else:
        slots = _proportional(config, grouping, slot_bytes, least)
    for pool_group, (have, need) in enumerate(zip(slots, least, strict=True)):
        if have < need:
            raise ConfigError(_too_small(config, grouping, pool_group, (have, need, slot_bytes[pool_group])))
    return slots


def _proportional(config: KVCacheConfig, grouping: Grouping, slot_bytes: list[int], least: list[int]) -> list[int]:
    quota = config.device_bytes or 0
    typical = min(config.max_seq_len, config.typical_seq_len or 2048)
    weight = shared_chunk_pages(grouping, min(config.max_chunk_tokens, typical))
    for group in grouping.groups:
        states = 2 if group.retention is Retention.STATE else 1
        weight[group.pool_group] += config.max_sequences * decode_pages(group, typical) * states
    fixed = sum(n * size for n, size in zip(least, slot_bytes, strict=True))
    if fixed > quota:
        return [min(n, quota * n * size // max(fixed, 1) // size) for n, size in zip(least, slot_bytes, strict=True)]
    total = sum(w * size for w, size in zip(weight, slot_bytes, strict=True))
    spare = quota - fixed
    return [n + spare * w * size // max(total, 1) // size for n, w, size in zip(least, weight, slot_bytes, strict=True)]


def _too_small(config: KVCacheConfig, grouping: Grouping, pool_group: int, numbers: tuple[int, int, int]) -> str:
    have, need, size = numbers
    members = [g for g in grouping.groups if g.pool_group == pool_group]
    kinds = ", ".join(
        f"group {g.group_id} ({g.retention.value}" + (f", window {g.window}" if g.window else "") + ")" for g in members
    )
    asked = f"pool_slots gives {have}" if config.pool_slots else f"device_bytes={config.device_bytes} gives {have}"
    return (
        f"pool group {pool_group} needs at least {need} slots of {size} bytes ({need * size} bytes) so that one "
        f"sequence can run, but {asked}; it serves {kinds}. Raise the quota"
    )
