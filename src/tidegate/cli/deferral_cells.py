"""The deferral scenario: what its cells are, what is measured in each, and how that is shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version

import numpy as np

from tidegate.base import ConfigError, Int32Array, InternalError, LayerSpec
from tidegate.cache import window_peak
from tidegate.report import Cell, Table, TokenHistory
from tidegate.request import Request, RequestOutput, SamplingParams

BALANCES = ("off", "fixed", "cost_aware")
DEFERRALS = ("reserve_late", "revert", "hold")
TIMEOUT_ITERS, BATCHING_WAIT_ITERS = 100, 20
BLOCK, WINDOW = 32, 128
POOL_SHARE = 0.4
_NUM_REQUESTS = {"fake": 512, "reference": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferralLoad:
    """``concurrency`` requests in flight over all ranks until ``num_requests`` have ended; lengths from ``seed``.

    Prompts are uniform in ``prompt_len`` and begin with one of ``num_heads`` heads of ``shared_len`` tokens, outputs
    are gamma-shaped around ``output_len``. ``pool_share`` is the quota of a rank, as a share of what its part of the
    concurrency needs at full length.
    """

    num_ranks: int = 8
    num_requests: int = 512
    concurrency: int = 256
    max_batch_size: int = 128
    prompt_len: tuple[int, int] = (288, 416)
    output_len: int = 64
    shared_len: int = 256
    num_heads: int = 12
    pool_share: float = POOL_SHARE
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_ranks", "num_requests", "concurrency", "max_batch_size", "output_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1", field=name)
        if not 0 < self.pool_share <= 4:
            raise ConfigError(f"pool_share={self.pool_share} must be in (0, 4]", field="pool_share")

    @classmethod
    def of(
        cls,
        engine: str,
        num_ranks: int | None,
        num_requests: int | None,
        concurrency: int | None,
        *,
        pool_share: float,
        seed: int,
    ) -> DeferralLoad:
        """Fill in what was not given; a real engine gets fewer and shorter requests than a fake one."""
        sizes = {} if engine == "fake" else {"prompt_len": (144, 208), "output_len": 16, "shared_len": 128}
        return cls(
            num_ranks=8 if num_ranks is None else num_ranks,
            num_requests=_NUM_REQUESTS[engine] if num_requests is None else num_requests,
            concurrency=256 if concurrency is None else concurrency,
            pool_share=pool_share,
            seed=seed,
            **sizes,  # type: ignore[arg-type]  # each of its own type
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self.prompt_len[1] + 4 * self.output_len

    def quota_bytes(self, layers: Sequence[LayerSpec]) -> int:
        """Return a rank's cache quota: the stated share of what its part of the concurrency needs at full length."""
        need, block = 0, 0
        for layer in layers:
            per_block = BLOCK * sum(buffer.bytes_per_entry for buffer in layer.buffers)
            blocks = -(-self.longest // BLOCK) if layer.window is None else window_peak(layer.window, BLOCK)
            need += blocks * per_block
            block += per_block
        # At least one request must fit, and the padding entry.
        return int(max(self.pool_share * -(-self.concurrency // self.num_ranks), 1.0) * need) + 2 * block

    def requests(self, vocab_size: int) -> list[Request]:
        """Return the requests, equal for equal seeds. Each ends at its length and draws the likeliest token."""
        rng = np.random.default_rng(self.seed)
        heads = rng.integers(0, vocab_size, (self.num_heads, self.shared_len))
        outputs = np.clip(rng.gamma(2.0, self.output_len / 2, self.num_requests), 2, 4 * self.output_len).astype(int)
        lengths = rng.integers(self.prompt_len[0], self.prompt_len[1] + 1, self.num_requests)
        return [
            Request(
                request_id=f"r{i}",
                prompt=_prompt(heads[rng.integers(self.num_heads)], rng, int(length), vocab_size),
                max_tokens=int(count),
                ignore_eos=True,
                declared=(self.shared_len,) if length >= self.shared_len > 0 else (),
                sampling=SamplingParams(temperature=0.0),
            )
            for i, (length, count) in enumerate(zip(lengths, outputs, strict=True))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferralCell:
    """One deferral policy under one kind of balance.

    ``violations`` counts failed audits, pages not returned and outputs that differ from the right ones.
    ``deferred_page_seconds`` is pages that held-back prefills own while a step runs, beyond those they had before.
    ``peak_pages`` is the most in use on any rank, over all pool groups; ``digest`` is of all outputs.
    """

    deferral: str
    balance: str
    requests: int
    completed: int
    violations: int
    tokens_per_s: float
    ttft_mean_s: float
    balance_ratio: float
    time_weighted_balance_ratio: float
    deferred_page_seconds: float
    peak_pages: int
    suspensions: int
    num_steps: int
    held_passes: int
    duration_s: float
    digest: str
    tokens: TokenHistory = field(repr=False)

    def record(self) -> dict[str, object]:
        """Return the numbers as JSON values."""
        return {name: value for name, value in _shallow(self).items() if name != "tokens"}


@dataclass(frozen=True, slots=True)
class DeferralReport:
    """All cells of one run."""

    engine: str
    load: DeferralLoad
    cells: tuple[DeferralCell, ...]

    def heading(self) -> list[str]:
        """Return what was run, in two lines."""
        load = self.load
        return [
            f"{load.num_ranks} ranks, {self.engine} engine: windowed and full layers, scratch on, no speculation; "
            f"{load.num_requests} requests, {load.concurrency} in flight, at most {load.max_batch_size} on a rank",
            f"timeout_iters={TIMEOUT_ITERS}, batching_wait_iters={BATCHING_WAIT_ITERS}; "
            f"quota {load.pool_share:g} of what that concurrency needs at full length",
        ]

    def table(self) -> Table:
        """Return one row for each cell."""
        rows: list[tuple[Cell, ...]] = [
            (
                cell.deferral,
                cell.balance,
                f"{cell.completed}/{cell.requests}",
                cell.violations,
                cell.tokens_per_s,
                cell.ttft_mean_s,
                cell.balance_ratio,
                cell.time_weighted_balance_ratio,
                cell.deferred_page_seconds,
                cell.peak_pages,
                cell.suspensions,
            )
            for cell in self.cells
        ]
        columns = (
            "deferral",
            "balance",
            "ended",
            "bad",
            "tokens/s",
            "TTFT (s)",
            "ratio",
            "by time",
            "page-s",
            "peak",
            "susp.",
        )
        return Table("Deferral policies and balance", columns, tuple(rows))

    def notes(self) -> list[str]:
        """Say what the columns are."""
        same = "same outputs in all cells" if self.same_outputs() else "OUTPUTS DIFFER BETWEEN CELLS"
        return [
            same,
            "bad: failed audits, lost pages, wrong outputs. ratio: mean over steps of mean by most tokens of a rank",
            "page-s: seconds that pages of held-back prefills were kept. peak: pages in use on one rank",
        ]

    def same_outputs(self) -> bool:
        """Whether every cell produced the same tokens for every request."""
        return len({cell.digest for cell in self.cells}) == 1

    def check(self) -> None:
        """Raise ``InternalError`` when a cell shows something that must not be, or outputs differ between cells."""
        bad = [f"{c.deferral}/{c.balance}" for c in self.cells if c.violations or c.completed < c.requests]
        if bad:
            raise InternalError(f"violations, or requests that did not end, in {', '.join(bad)}", cells=bad)
        if not self.same_outputs():
            raise InternalError("the same requests had different outputs in different cells")

    def json(self) -> str:
        """Return everything as JSON."""
        record = {
            "version": version("tidegate"),
            "engine": self.engine,
            "load": asdict(self.load),
            "timeout_iters": TIMEOUT_ITERS,
            "batching_wait_iters": BATCHING_WAIT_ITERS,
            "same_outputs": self.same_outputs(),
            "cells": [cell.record() for cell in self.cells],
        }
        return json.dumps(record, indent=1) + "\n"


def balance_settings(balance: str) -> dict[str, object]:
    """Return the ``attention_dp_config`` of a kind of balance."""
    if balance == "off":
        return {"enable_balance": False}
    return {
        "enable_balance": True,
        "policy": balance,
        "timeout_iters": TIMEOUT_ITERS,
        "batching_wait_iters": BATCHING_WAIT_ITERS,
    }


def _prompt(head: np.ndarray, rng: np.random.Generator, length: int, vocab_size: int) -> Int32Array:
    tail = rng.integers(0, vocab_size, max(length - len(head), 1))
    return np.concatenate([head, tail]).astype(np.int32)


def _shallow(cell: DeferralCell) -> dict[str, object]:
    return {name: getattr(cell, name) for name in cell.__slots__}


def cells_of(deferrals: Sequence[str] = DEFERRALS, balances: Sequence[str] = BALANCES) -> list[tuple[str, str]]:
    """Return all pairs, deferral by deferral."""
    return [(deferral, balance) for deferral in deferrals for balance in balances]


def digest_of(outputs: Mapping[str, RequestOutput]) -> str:
    """Return a digest of all outputs, whatever the order in which they came."""
    total = hashlib.blake2b(digest_size=8)
    for request_id in sorted(outputs):
        total.update(request_id.encode() + outputs[request_id].tokens.astype("<i4").tobytes())
    return total.hexdigest()
