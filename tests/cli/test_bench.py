import json
from pathlib import Path

import pytest

from tests.cli.alphabet_model import Opened


def test_tables_show_what_happened(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert opened.run("bench", "--input-len", 8, "--output-len", 4, "--num-requests", 5, "--concurrency", 2) == 0

    shown = capsys.readouterr().out
    for words in ("TTFT", "TPOT", "output tokens/s", "cache hits", "without scratch", "window", "75"):
        assert words in shown
    assert "5 slots instead of 32" in shown


def test_synthetic_requests_have_the_lengths_and_share_a_head(opened: Opened) -> None:
    opened.run("bench", "--input-len", 8, "--output-len", 4, "--shared-len", 3, "--num-requests", 2, "--seed", 5)

    first, second = opened.models[0].requests
    assert (len(first.prompt), first.max_tokens, first.ignore_eos) == (8, 4, True)
    assert first.prompt[:3].tolist() == second.prompt[:3].tolist()
    assert first.prompt.tolist() != second.prompt.tolist()


def test_by_default_every_third_layer_is_full_and_scratch_is_on(opened: Opened) -> None:
    opened.run("bench", "--input-len", 8, "--output-len", 4)

    settings = opened.models[0].settings
    assert (settings.attention, settings.scratch, settings.max_sequences) == ("hybrid", True, 8)


def test_prompts_of_a_file_are_taken_in_turn(opened: Opened, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\ntwo\n")

    assert opened.run("bench", "--prompts", prompts, "--num-requests", 3, "--output-len", 2) == 0

    assert [bytes(r.prompt.tolist()).decode() for r in opened.models[0].requests] == ["one", "two", "one"]


def test_json_lines_give_text_or_tokens_and_lengths(opened: Opened, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\n{"tokens": [5, 6], "max_tokens": 1}\n')

    assert opened.run("bench", "--prompts", prompts, "--output-len", 2) == 0

    assert [r.prompt.tolist() for r in opened.models[0].requests] == [list(b"one"), [5, 6]]
    assert [r.max_tokens for r in opened.models[0].requests] == [2, 1]


def test_json_holds_settings_summary_groups_and_requests(opened: Opened, tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    assert opened.run("bench", "--input-len", 8, "--output-len", 4, "--num-requests", 3, "--json", out) == 0

    record = json.loads(out.read_text())
    assert record["settings"]["block_size"] == 32
    assert (record["summary"]["num_requests"], record["summary"]["output_tokens"]) == (3, 12)
    assert record["summary"]["cached_tokens"] == 3
    assert record["groups"][1]["plain_peak"] == 20
    assert record["scratch_example"]["slots"] == 5
    assert record["scratch_example"]["slots_without_scratch"] == 32
    assert len(record["requests"]) == 3
    assert record["pages"]["names"] == ["full", "window"]


def test_figure_is_a_png(opened: Opened, tmp_path: Path) -> None:
    out = tmp_path / "pages.png"

    assert opened.run("bench", "--input-len", 8, "--output-len", 4, "--figure", out) == 0

    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_rate_spreads_the_requests(opened: Opened) -> None:
    assert opened.run("bench", "--input-len", 8, "--output-len", 1, "--num-requests", 3, "--request-rate", 1e4) == 0

    arrivals = [request.arrival_s for request in opened.models[0].requests]
    assert arrivals == sorted(arrivals) and len(set(arrivals)) == 3


def test_an_interrupted_run_writes_nothing(opened: Opened, tmp_path: Path) -> None:
    opened.behaviour["interrupt"] = True

    code = opened.run("bench", "--input-len", 8, "--output-len", 1, "--json", tmp_path / "out.json")

    assert (code, list(tmp_path.iterdir())) == (130, [])


def test_what_is_served_is_said_before_the_tables(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    opened.run("bench", "--input-len", 8, "--output-len", 4, "--num-requests", 5, "--concurrency", 2, "--window", 64)

    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("SmolLM2-135M-Instruct, float32: every third layer full, the others window 64 + 4 sinks")
    assert second == "5 requests: the next when one has ended, at most 2 at once; at most 512 tokens in a step"
