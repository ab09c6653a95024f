import io
import sys
from pathlib import Path

import pytest

from tests.cli.alphabet_model import Opened
from tidegate.request import FinishReason


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_text_goes_to_stdout_and_nothing_else(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert opened.run("generate", "hello", "--max-tokens", 5) == 0

    assert capsys.readouterr() == ("abcde\n", "")


def test_flags_reach_the_model_and_the_request(opened: Opened) -> None:
    flags = "--model m --attention hybrid --window 7 --sinks 2 --dtype bfloat16 --block-size 16 --no-scratch"
    sampling = "--temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.5 --seed 9"

    assert (
        opened.run("generate", "hi", "--max-tokens", 3, "--stop", "x", "--stop", "y", *f"{flags} {sampling}".split())
        == 0
    )

    (model,) = opened.models
    (request,) = model.requests
    assert (model.settings.model, model.settings.attention, model.settings.window) == ("m", "hybrid", 7)
    assert (model.settings.sinks, model.settings.dtype, model.settings.block_size) == (2, "bfloat16", 16)
    assert not model.settings.scratch
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.top_p) == (0.5, 3, 0.9)
    assert (request.sampling.min_p, request.sampling.repetition_penalty, request.sampling.seed) == (0.1, 1.5, 9)
    assert (request.max_tokens, request.stop) == (3, ("x", "y"))


def test_without_flags_the_model_runs_as_trained_and_greedily(opened: Opened) -> None:
    opened.run("generate", "hi", "--max-tokens", 1)

    (model,) = opened.models
    assert model.settings.attention == "full"
    assert model.requests[0].sampling.is_greedy


def test_chat_puts_the_prompt_into_the_template(opened: Opened) -> None:
    opened.run("generate", "hi", "--chat", "--max-tokens", 1)

    assert opened.models[0].requests[0].prompt.tolist() == list(b"<hi>")


def test_prompt_may_come_from_a_file(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("grüße", encoding="utf-8")

    assert opened.run("generate", "--file", tmp_path / "prompt.txt", "--max-tokens", 1) == 0

    assert opened.models[0].requests[0].prompt.tolist() == list("grüße".encode())


@pytest.mark.parametrize("argument", [(), ("-",)])
def test_prompt_may_come_from_stdin(opened: Opened, argument: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, "grüße".encode())

    assert opened.run("generate", *argument, "--max-tokens", 1) == 0

    assert opened.models[0].requests[0].prompt.tolist() == list("grüße".encode())


def test_stdin_must_be_utf8(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_stdin(monkeypatch, b"ab\xff")

    assert opened.run("generate") == 2

    assert capsys.readouterr().err == "tidegate: stdin is not UTF-8 text: byte 2 is 0xff (invalid start byte)\n"
    assert not opened.models


def test_a_failing_engine_is_an_error(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    opened.behaviour["finish_reason"] = FinishReason.ERROR

    assert opened.run("generate", "hi", "--max-tokens", 2) == 2

    assert capsys.readouterr().err == "tidegate: the planted fault\n"


def test_ending_for_lack_of_room_is_said(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    opened.behaviour["finish_reason"] = FinishReason.CAPACITY

    assert opened.run("generate", "hi", "--max-tokens", 2) == 0

    assert "stopped after 2 tokens" in capsys.readouterr().err


def test_interrupt_exits_130(opened: Opened) -> None:
    opened.behaviour["interrupt"] = True

    assert opened.run("generate", "hi", "--max-tokens", 1) == 130
