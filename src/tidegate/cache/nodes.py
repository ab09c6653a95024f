"""The prefix tree's parts: which token runs are cached, and on which pages.

Path-compressed: a node is a run of whole *units* (the smallest length that is a block border in every group) with one
byte string of int32 tokens and one page-id array per full group. Comparison is exact, so no collision can leak pages
between users. Children are found by their first unit; kept sorted, a neighbour of the bisection point shares the
longest prefix, which makes partial matches logarithmic. A node may end in a *tail* of less than a unit, published when
its sequence closed.

A running sequence publishes through an *open leaf*: ``row >= 0``, its content is read from the sequence's arrays and
its length is ``published - start``. It becomes a plain node when another sequence reaches it or its own closes. When
many close in one step each becomes a *closed leaf*, whose content lies in arrays of the whole batch and which turns
into a plain node when somebody looks at it.

Windowed and state pages are kept by *checkpoints*: at ``h``, the pages a sequence continuing at ``h`` needs. A
checkpoint is listed in every node that its windows reach into, and goes as a whole.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.base import ConfigError, Int32Array, InternalError

if TYPE_CHECKING:
    from tidegate.cache.closed import ClosedRows

TOKEN_BYTES = 4
Held = tuple[int, Int32Array]
"""Pages of consecutive blocks: first ordinal, page ids."""


@dataclass(frozen=True, slots=True)
class ReuseScope:
    """Selects the tree. Scopes share nothing; every part is typed, so a salt never equals an adapter.

    ``lora_id`` names an adapter *with* its content version; ``salt`` isolates tenants. None and "" are different.
    """

    lora_id: str | int | None = None
    salt: str | None = None
    lora_version: str | int = 0

    def __post_init__(self) -> None:
        for field, value, kinds in (
            ("lora_id", self.lora_id, (str, int, type(None))),
            ("salt", self.salt, (str, type(None))),
            ("lora_version", self.lora_version, (str, int)),
        ):
            if isinstance(value, bool) or not isinstance(value, kinds):
                legal = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise ConfigError(f"{field}={value!r} must be {legal}", field=field, value=value)


class ScopeTree:
    """One scope's tree. ``version`` changes whenever a match in it could come out otherwise."""

    __slots__ = ("root", "scope", "version")

    def __init__(self, scope: ReuseScope, version: int) -> None:
        self.scope = scope
        self.root = Node(self, None, 0, -1)
        self.version = version


class Node:
    """A run of cached blocks; see the module text."""

    __slots__ = (
        "alive",
        "batch",
        "checkpoints",
        "children",
        "data",
        "index",
        "key",
        "keys",
        "pages",
        "parent",
        "row",
        "start",
        "tail",
        "tree",
    )

    def __init__(self, tree: ScopeTree, parent: Node | None, start: int, row: int) -> None:
        self.tree = tree
        self.parent = parent
        self.start = start
        self.row = row
        self.key = b""
        self.data = b""
        self.tail = b""
        self.pages: list[Int32Array] = []
        self.children: dict[bytes, Node] | None = None
        self.keys: list[bytes] | None = None
        self.checkpoints: list[Checkpoint] | None = None
        self.index = -1
        self.alive = True
        self.batch: ClosedRows | None = None

    @property
    def end(self) -> int:
        """Token position after the node's whole units; not for open leaves."""
        return self.start + len(self.data) // TOKEN_BYTES


class ClosedLeaf(Node):
    """A leaf whose row has ended, ``row`` being ``-2 - place`` in its batch: whoever looks inside makes it a ``Node``.

    A class of its own, put on and taken off, so that reading plain nodes costs nothing more.
    """

    __slots__ = ()

    @property
    def closed_rows(self) -> ClosedRows:
        """The batch that its content lies in."""
        if self.batch is None:
            raise InternalError("a closed leaf belongs to no batch", start=self.start)
        return self.batch

    def unfold(self) -> Node:
        """Become a plain node."""
        self.closed_rows.unfold(self)
        return self

    @property
    def earlier_checkpoints(self) -> list[Checkpoint] | None:
        """Its checkpoints but the one at its end."""
        return super().checkpoints

    @property
    def data(self) -> bytes:  # type: ignore[override]  # stands in for the slot until this is a plain node
        """Its tokens in whole units."""
        return self.unfold().data

    @property
    def tail(self) -> bytes:  # type: ignore[override]  # likewise
        """Its other tokens."""
        return self.unfold().tail

    @property
    def pages(self) -> list[Int32Array]:  # type: ignore[override]  # likewise
        """Its pages in each full group."""
        return self.unfold().pages

    @property
    def checkpoints(self) -> list[Checkpoint] | None:  # type: ignore[override]  # likewise
        """Its checkpoints, the one at its end included."""
        return self.unfold().checkpoints


class Checkpoint:
    """Pages of windowed and state groups that make ``position`` reusable, by ``RadixTree.special`` order."""

    __slots__ = ("alive", "home", "index", "nodes", "position", "sinks", "windows")

    def __init__(self, position: int, windows: list[Held], sinks: list[Int32Array | None]) -> None:
        self.position = position
        self.windows = tuple(windows)
        self.sinks = tuple(sinks)
        for pages in (*(pages for _, pages in windows), *sinks):
            if pages is not None:
                pages.setflags(write=False)  # look-ups hand them out
        self.nodes: tuple[Node, ...] = ()
        self.home: Node | None = None
        self.index = -1
        self.alive = True


def list_checkpoint(node: Node, checkpoint: Checkpoint) -> None:
    """Enter a checkpoint in one node's list, which is ordered by position."""
    if not node.checkpoints:
        node.checkpoints = [checkpoint]
    elif node.checkpoints[-1].position <= checkpoint.position:
        node.checkpoints.append(checkpoint)
    else:
        insort(node.checkpoints, checkpoint, key=lambda c: c.position)
    checkpoint.nodes = (*checkpoint.nodes, node)
