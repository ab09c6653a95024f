"""The deferral scenario: no violation in any cell, and the undo rule of old fails in both known ways."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from tidegate.base import InternalError
from tidegate.cli import main
from tidegate.cli.deferral_cells import BALANCES, DEFERRALS, DeferralCell, DeferralLoad, DeferralReport, cells_of
from tidegate.cli.deferral_fake import FakeCells
from tidegate.cli.deferral_run import CellRun
from tidegate.runtime.deferral import ReserveEarly

LOAD = DeferralLoad(num_ranks=4, num_requests=32, concurrency=24, output_len=10, prompt_len=(224, 320), shared_len=192)


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], DeferralCell]:
    """Run every cell once."""
    fake = FakeCells(LOAD)
    return {name: fake.run(*name) for name in cells_of()}


def test_every_request_ends_rightly_in_every_cell(cells: dict[tuple[str, str], DeferralCell]) -> None:
    for cell in cells.values():
        assert (cell.completed, cell.violations) == (LOAD.num_requests, 0)
    assert len({cell.digest for cell in cells.values()}) == 1


def test_only_hold_keeps_pages_of_what_waits(cells: dict[tuple[str, str], DeferralCell]) -> None:
    for balance in BALANCES:
        assert cells["reserve_late", balance].deferred_page_seconds == 0
        assert cells["revert", balance].deferred_page_seconds == 0
    assert cells["hold", "fixed"].deferred_page_seconds > 0
    assert cells["hold", "off"].deferred_page_seconds == 0


def test_balance_holds_prefills_and_evens_ranks_out(cells: dict[tuple[str, str], DeferralCell]) -> None:
    for deferral in DEFERRALS:
        assert cells[deferral, "off"].held_passes == 0
        assert cells[deferral, "fixed"].held_passes > 0
        assert cells[deferral, "fixed"].balance_ratio > cells[deferral, "off"].balance_ratio


def test_the_same_cell_runs_the_same_twice(cells: dict[tuple[str, str], DeferralCell]) -> None:
    again = FakeCells(LOAD).run("hold", "cost_aware")
    assert again.record() == cells["hold", "cost_aware"].record()
    assert np.array_equal(again.tokens.tokens, cells["hold", "cost_aware"].tokens.tokens)


def test_a_violation_fails_the_run(cells: dict[tuple[str, str], DeferralCell]) -> None:
    report = DeferralReport("fake", LOAD, tuple(cells.values()))
    report.check()
    broken = FakeCells(LOAD)
    broken._expected["r3"][1] += 1
    bad = DeferralReport("fake", LOAD, (broken.run("revert", "off"),))
    with pytest.raises(InternalError, match="revert/off"):
        bad.check()


def test_a_rank_that_follows_does_not_go_on_alone_after_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellRun, "lead", lambda run, *_: run.follow())
    monkeypatch.setattr(CellRun, "step", lambda run: False)

    with pytest.raises(InternalError, match="on this rank"):
        FakeCells(LOAD).run("hold", "fixed")


def old_undo(monkeypatch: pytest.MonkeyPatch, *, keeps_history_rule: bool) -> None:
    """Put the undo back that shrinks a grown cache by the rules of decoding: the history is as long as the capacity,
    and no scratch is live."""
    give_back = ReserveEarly._give_back

    def shrink(self: ReserveEarly, request_id: str) -> None:
        (reservation,) = self._allocator._contexts[request_id].parts
        sequences, row = self._manager._core.sequences, int(reservation.rows[0])
        history, capacity = int(sequences.history[row]), int(sequences.capacity[row])
        if keeps_history_rule and not capacity <= history <= capacity:
            raise InternalError(f"{capacity} <= {history} <= {capacity}")
        if any(rows.num_scratch[row] for rows in self._manager._core.rows):
            raise InternalError(f"row {row} has live scratch and cannot shrink")
        give_back(self, request_id)

    monkeypatch.setattr(ReserveEarly, "_give_back", shrink)


@pytest.mark.parametrize(
    ("keeps_history_rule", "words"), [(True, "965 <= 0 <= 965"), (False, "live scratch and cannot shrink")]
)
def test_the_old_undo_fails_in_both_known_ways(
    keeps_history_rule: bool, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old_undo(monkeypatch, keeps_history_rule=keeps_history_rule)

    load = DeferralLoad(num_ranks=2, num_requests=8, concurrency=8, prompt_len=(965, 965), shared_len=0, pool_share=0.7)

    with caplog.at_level(logging.WARNING):
        cell = FakeCells(load).run("revert", "fixed")

    assert cell.violations > 0
    assert cell.completed < cell.requests
    assert words in caplog.text
    monkeypatch.undo()
    assert FakeCells(load).run("revert", "fixed").violations == 0


def test_the_command_writes_table_json_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, figure = tmp_path / "cells.json", tmp_path / "tokens.png"

    sizes = ("--ranks", "2", "--num-requests", "4", "--concurrency", "3")
    code = main(["bench", "--scenario", "deferral", *sizes, "--json", str(record), "--figure", str(figure)])

    assert code == 0
    shown = capsys.readouterr().out
    assert "same outputs in all cells" in shown
    found = json.loads(record.read_text())["cells"]
    assert [(cell["deferral"], cell["balance"]) for cell in found] == cells_of()
    wanted = {"requests", "completed", "violations", "tokens_per_s", "ttft_mean_s", "balance_ratio"}
    assert wanted | {"deferred_page_seconds", "peak_pages"} <= found[0].keys()
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--pool-share", "0"), "pool_share"),
        (("--ranks", "0"), "num_ranks"),
        (("--num-requests", "0"), "num_requests"),
        (("--concurrency", "-1"), "concurrency"),
    ],
)
def test_bad_sizes_are_named(arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--scenario", "deferral", *arguments]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--scenario", "deferral", "--input-len", "5"), "--input-len"),
        (("--scenario", "deferral", "--config", "x.yaml"), "--config"),
        (("--engine", "reference"), "--engine"),
        (("--pool-share", "0.5"), "--pool-share"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(
    arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert word in capsys.readouterr().err
