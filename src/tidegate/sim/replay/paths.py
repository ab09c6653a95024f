"""A workload as paths of blocks: which prefix each request asks for and leaves behind, in the order of time.

A block is named by all text up to its end, so that two requests share a block exactly if they share the prefix that
ends with it. Names come from 64-bit fingerprints of the segments, not from stored tokens: two of a million different
blocks are taken for one with a chance of 3e-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidegate.base import Int32Array, Int64Array, check_integer
from tidegate.workload import Content, Feed, Workload, WorkloadRequest, content_seeds, content_tokens

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_INSIDE = np.uint64(0xC2B2AE3D27D4EB4F)
_LENGTH = np.uint64(0x165667B19E3779F9)
_UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Paths:
    """Request ``i`` computes ``num_tokens[i]`` positions, of which the first ``num_prompt[i]`` are its prompt.

    Its whole blocks are ``nodes[starts[i]:starts[i + 1]]``, int32 ids from 1 on, equal for equal prefixes. All arrays
    are int64 of ``[n]`` otherwise, ``starts`` of ``[n + 1]``.
    """

    block_tokens: int
    nodes: Int32Array
    starts: Int64Array
    num_prompt: Int64Array
    num_tokens: Int64Array
    declared: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.num_prompt)

    @property
    def num_nodes(self) -> int:
        """How many different blocks there are."""
        return int(self.nodes.max(initial=0))

    @cached_property
    def num_usable(self) -> Int64Array:
        """How many blocks of each prompt could be reused: at least one token is left to compute."""
        usable: Int64Array = (self.num_prompt - 1) // self.block_tokens
        return usable

    def of(self, request: int) -> Int32Array:
        """Return one request's blocks."""
        return self.nodes[self.starts[request] : self.starts[request + 1]]


def block_paths(workload: Workload, block_tokens: int, *, with_outputs: bool = True) -> Paths:
    """Return the paths of a workload's requests in the order in which they come when each is served at once."""
    check_integer("block_tokens", block_tokens, 1, 1 << 20)
    names: list[_UInt64Array] = []
    prompts, totals, declared = [], [], []
    for request in in_time(workload):
        # The last token that is drawn is never computed.
        output = request.num_output_tokens - 1 if with_outputs else 0
        names.append(_block_names(request, output, block_tokens))
        prompts.append(request.prompt.num_tokens)
        totals.append(prompts[-1] + output)
        declared.append(request.declared)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in names], dtype=np.int64)])
    _, nodes = np.unique(np.concatenate([np.empty(0, np.uint64), *names]), return_inverse=True)
    return Paths(
        block_tokens,
        (nodes + 1).astype(np.int32),
        starts,
        np.array(prompts, np.int64),
        np.array(totals, np.int64),
        tuple(declared),
    )


def in_time(workload: Workload) -> Iterator[WorkloadRequest]:
    """Yield requests as they come if serving takes no time: a turn comes when its user has thought."""
    feed = Feed(workload)
    while (now := feed.next_s) is not None:
        for request, _ in feed.due(now):
            yield request
            feed.ended(request.request_id, now)


def _block_names(request: WorkloadRequest, output: int, block_tokens: int) -> _UInt64Array:
    """Return the names of the whole blocks of a request's prompt and its first ``output`` produced tokens."""
    given = request.prompt.given
    if given is not None:
        drawn = content_tokens(np.full(output, request.output_key), np.arange(output))
        blocks = _blocks_of_tokens(np.concatenate([given, drawn]), block_tokens)
    else:
        blocks = _blocks_of_segments(_joined(request.prompt, request.output_key, output), block_tokens)
    places = np.arange(len(blocks), dtype=np.uint64)
    return _mixed(np.cumsum(_mixed(blocks + places * _GOLDEN), dtype=np.uint64))


def _joined(prompt: Content, output_key: int, output: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Segments of prompt and output: keys, offsets, lengths; what continues the same text is one segment."""
    keys = np.append(prompt.keys, output_key).astype(np.int64)
    offsets = np.append(prompt.offsets, 0)
    lengths = np.append(prompt.lengths, output)
    is_some = lengths > 0
    keys, offsets, lengths = keys[is_some], offsets[is_some], lengths[is_some]
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = (keys[1:] != keys[:-1]) | (offsets[1:] != offsets[:-1] + lengths[:-1])
    first = is_new.nonzero()[0]
    return keys[first], offsets[first], np.add.reduceat(lengths, first) if len(first) else lengths


def _blocks_of_segments(segments: tuple[Int64Array, Int64Array, Int64Array], block_tokens: int) -> _UInt64Array:
    """Fingerprints of whole blocks: the sum over the pieces of text in each of a mix of what and where they are."""
    keys, offsets, lengths = segments
    num_tokens = int(lengths.sum())
    count = num_tokens // block_tokens
    if not count:
        return np.empty(0, np.uint64)
    starts = np.cumsum(lengths) - lengths
    cuts = np.union1d(starts, np.arange(0, num_tokens, block_tokens))
    segment = np.searchsorted(starts, cuts, side="right") - 1
    block = cuts // block_tokens
    sizes = np.diff(cuts, append=num_tokens)
    text = content_seeds(keys)[segment] + (offsets[segment] + cuts - starts[segment]).astype(np.uint64) * _GOLDEN
    where = (cuts - block * block_tokens).astype(np.uint64) * _INSIDE + sizes.astype(np.uint64) * _LENGTH
    first = np.searchsorted(cuts, np.arange(count) * block_tokens)
    pieces = _mixed(_mixed(text) + where)[: np.searchsorted(cuts, count * block_tokens)]
    blocks: _UInt64Array = np.add.reduceat(pieces, first)
    return blocks


def _blocks_of_tokens(tokens: Int32Array, block_tokens: int) -> _UInt64Array:
    """Fingerprints of the whole blocks of real tokens."""
    whole = tokens[: len(tokens) // block_tokens * block_tokens].astype(np.uint64).reshape(-1, block_tokens)
    places = np.arange(block_tokens, dtype=np.uint64) * _INSIDE
    blocks: _UInt64Array = np.add.reduce(_mixed(whole + places[None, :]), axis=1)
    return blocks


def _mixed(words: _UInt64Array) -> _UInt64Array:
    return content_seeds(words.view(np.int64))
