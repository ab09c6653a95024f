"""Proves that nothing is lost, owned twice or kept for nobody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.base import Int64Array, InternalError
from tidegate.cache.core import CacheCore
from tidegate.cache.nodes import Checkpoint, ClosedLeaf, Node
from tidegate.cache.ranges import live, scratch_need
from tidegate.cache.sequences import Mode
from tidegate.cache.tables import GroupRows
from tidegate.cache.tree_reader import subtree


def audit_cache(core: CacheCore) -> None:
    """Raise ``InternalError`` naming the first broken invariant. Costs time proportional to the whole state."""
    open_reservations = bool(core.open)
    locks = [np.zeros(len(pool.slot), np.int64) for pool in core.pools]
    for group, rows in enumerate(core.rows):
        _audit_rows(core, rows, group, locks[rows.group.pool_group], exact=not open_reservations)
    for entries in core.pending_snapshots.values():
        for _, pages in entries:
            for group, page in pages.items():
                locks[core.rows[group].group.pool_group][page] += 1
    refs = [np.zeros(len(pool.slot), np.int64) for pool in core.pools]
    _audit_tree(core, refs)
    for number, pool in enumerate(core.pools):
        where = f"pool group {number}"
        have = pool.slot >= 0
        slots = np.concatenate([pool.slot[have], pool.storage.free.peek()])
        _require(len(slots) == pool.num_slots, f"{where}: {len(slots)} of {pool.num_slots} slots accounted for")
        _require(len(np.unique(slots)) == len(slots), f"{where}: a slot is in two places")
        if not open_reservations:
            wrong = np.flatnonzero(pool.locks != locks[number])
            _require(
                not len(wrong),
                f"{where}: page {wrong[:1]} has {pool.locks[wrong[:1]]} locks, not {locks[number][wrong[:1]]}",
            )
            _require(pool.doomed == 0, f"{where}: {pool.doomed} pages are doomed by nobody")
        wrong = np.flatnonzero(pool.refs != refs[number])
        _require(
            not len(wrong), f"{where}: page {wrong[:1]} has {pool.refs[wrong[:1]]} refs, not {refs[number][wrong[:1]]}"
        )
        idle = have & (pool.locks == 0)
        _require(not (idle & (pool.refs == 0)).any(), f"{where}: a page with a slot belongs to nobody")
        _require(int(idle.sum()) == pool.evictable, f"{where}: {idle.sum()} evictable pages, counted {pool.evictable}")
        free_ids = pool.ids.peek()
        _require(len(np.unique(free_ids)) == len(free_ids), f"{where}: a page id is free twice")
        _require(not have[free_ids].any(), f"{where}: a free page id has a slot")
        queued = pool.policy.num_queued(have & (pool.locks == 0) & (pool.refs > 0))
        _require(queued == pool.evictable, f"{where}: {queued} of {pool.evictable} evictable pages are queued")


def _require(holds: bool | np.bool_, what: str) -> None:
    if not holds:
        raise InternalError(what)


def _audit_rows(core: CacheCore, rows: GroupRows, group: int, locks: Int64Array, *, exact: bool) -> None:
    """Pages equal the function of the cursors; the two arenas agree; count the locks that rows hold."""
    sequences = core.sequences
    owned = 0
    for row in range(sequences.num_rows):
        have = np.flatnonzero(rows.pages[row] >= 0)
        pages = rows.pages[row, have]
        where = f"row {row}, group {group}"
        if sequences.mode[row] == Mode.FREE:
            _require(not len(have) and rows.scratch[row] is None, f"{where}: a free row owns pages")
            continue
        _require(len(np.unique(pages)) == len(pages), f"{where}: one page for two blocks")
        slots = rows.slots[row]
        lent = rows.pool.slot[pages] < 0 if not exact else np.zeros(len(pages), np.bool_)
        _require(
            (lent | (slots[have] == rows.pool.slot[pages])).all(),
            f"{where}: the slot row disagrees with the page record",
        )
        _require(int((slots >= 0).sum()) <= len(have), f"{where}: the slot row has more entries than the record")
        locks[pages] += 1
        held = rows.scratch[row]
        scratch = 0 if held is None else len(held)
        if held is not None:
            locks[held] += 1
            _require((rows.pool.refs[held] == 0).all(), f"{where}: a scratch page is cached")
        _require(scratch == rows.num_scratch[row], f"{where}: {scratch} scratch slots, counted {rows.num_scratch[row]}")
        owned += len(have) + scratch
        cursors = sequences.cursors(row)
        chain = [cursors.settled, cursors.history, *(step.end for step in cursors.steps)]
        _require(
            chain == sorted(chain) and cursors.capacity == sequences.capacity[row],
            f"{where}: cursors {chain} and capacity {int(sequences.capacity[row])} are out of order",
        )
        if exact:
            runs = live(cursors.settled, cursors.capacity, cursors.steps, rows.group.rule)
            expected = [block for run in runs for block in range(*run)]
            _require(have.tolist() == expected, f"{where}: owns blocks {have.tolist()}, should own {expected}")
            need = scratch_need(cursors.steps, rows.group.rule)
            _require(scratch == need, f"{where}: owns {scratch} scratch slots, should own {need}")
    if exact:
        _require(owned == rows.owned, f"group {group}: {owned} pages owned, counted {rows.owned}")


def _audit_tree(core: CacheCore, refs: Sequence[Int64Array]) -> None:
    """Links are mutual, lengths agree with pages, owners are right; count what the tree keeps."""
    tree = core.tree
    checkpoints: dict[int, Checkpoint] = {}
    nodes = 0
    for scope_tree in tree.trees():
        for node in subtree(scope_tree.root):
            nodes += 1
            inside = node.closed_rows.twin(node) if isinstance(node, ClosedLeaf) else node
            _audit_node(core, node, inside)
            if node.row < 0:
                for i, rows in enumerate(tree.full):
                    pages = inside.pages[i]
                    refs[rows.group.pool_group][pages] += 1
                    for page in pages[rows.pool.owner[pages] != node.index].tolist():
                        holders = tree.owners.holders(rows.pool, page)
                        _require(node in holders, "a cached page does not know its node")
            for checkpoint in inside.checkpoints or ():
                _require(checkpoint.alive and node in checkpoint.nodes, "a node lists a dead checkpoint")
                checkpoints[id(checkpoint)] = checkpoint
    _require(nodes == tree.num_nodes, f"{nodes} nodes reachable, counted {tree.num_nodes}")
    for checkpoint in checkpoints.values():
        _require(checkpoint.home is not None and checkpoint.home.alive, "a checkpoint outlives its node")
        for index, rows in enumerate(tree.special):
            for part in (checkpoint.windows[index][1], checkpoint.sinks[index]):
                if part is not None:
                    refs[rows.group.pool_group][part] += 1


def _audit_node(core: CacheCore, node: Node, inside: Node) -> None:
    """Check one node; ``inside`` is a plain one with its content."""
    tree = core.tree
    parent = node.parent
    _require(parent is not None and node.alive, "a reachable node is dead")
    assert parent is not None
    key = (inside.data if node.row < 0 else tree.reader.content(node))[: tree.unit_bytes] or inside.tail
    _require((parent.children or {}).get(key) is node, "a node is not found by its first unit")
    _require(parent.keys == sorted(parent.children or {}), "children and their order disagree")
    _require(node.start == (0 if parent.parent is None else parent.end), "a node does not start where its parent ends")
    if node.row >= 0:
        _require(core.sequences.leaf[node.row] is node, "an open leaf belongs to no sequence")
        _require(not node.children, "an open leaf has children")
        return
    for i, rows in enumerate(tree.full):
        tokens = (len(inside.data) + len(inside.tail)) // 4
        blocks = -(-tokens // rows.group.block_tokens)
        _require(len(inside.pages[i]) == blocks, f"a node of {tokens} tokens has {len(inside.pages[i])} pages")
    if not tree.full and not node.children and node not in core.sequences.attach:
        _require(bool(inside.checkpoints), "a node that nothing needs is kept")
