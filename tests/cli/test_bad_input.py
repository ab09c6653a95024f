"""Whatever a user gets wrong: one paragraph on stderr, exit code 2, nothing half-written, no traceback."""

import contextlib
import shlex
from pathlib import Path

import pytest

from tests.cli.alphabet_model import Opened

BAD_FLAGS = {
    "negative count": ("bench --num-requests -1", "--num-requests -1 must be at least 1"),
    "no request": ("bench --num-requests 0", "--num-requests 0"),
    "no concurrency": ("bench --concurrency 0", "--concurrency 0"),
    "rate that is no number": ("bench --request-rate nan", "request_rate=nan"),
    "negative rate": ("bench --request-rate -2", "request_rate=-2"),
    "endless rate": ("bench --request-rate inf", "request_rate=inf"),
    "empty prompts": ("bench --input-len 0", "--input-len 0"),
    "negative output": ("bench --output-len -4", "--output-len -4"),
    "shared head longer than the prompt": ("bench --input-len 8 --shared-len 9", "--shared-len 9"),
    "no window": ("bench --window 0", "--window 0"),
    "negative sinks": ("bench --sinks -1", "--sinks -1"),
    "no block": ("bench --block-size 0", "--block-size 0"),
    "no chunk": ("bench --chunk-size 0", "--chunk-size 0"),
    "negative seed": ("bench --seed -1", "--seed -1"),
    "no memory": ("bench --kv-cache-memory-bytes 0", "--kv-cache-memory-bytes 0"),
    "negative tokens": ("generate hi --max-tokens -1", "--max-tokens -1"),
    "temperature that is no number": ("generate hi --temperature nan", "temperature=nan"),
    "top-p out of range": ("generate hi --top-p 1.5", "top_p=1.5"),
    "negative sampling seed": ("generate hi --seed -1", "seed=-1"),
    "empty prompt": ("generate ' '", "the prompt is empty"),
    "two prompts": ("generate hi --file x", "not both"),
    "missing prompt file": ("generate --file missing.txt", "cannot read missing.txt: No such file or directory"),
    "missing prompts": ("bench --prompts missing.txt", "cannot read missing.txt"),
    "record in a missing directory": ("bench --json missing/out.json", "cannot write missing/out.json"),
    "figure in a missing directory": ("bench --figure missing/out.png", "cannot write missing/out.png"),
    "requests without end": ("bench --num-requests 99999999999", "--num-requests 99999999999 must be at most"),
    "prompts without end": ("bench --input-len 99999999999", "--input-len 99999999999 must be at most"),
    "rate of one in an age": ("bench --request-rate 1e-300", "request_rate=1e-300"),
    "no model": ("generate hi --model ''", "--model must not be empty"),
    "both outputs in one file": ("bench --json out --figure ./out", "both name out"),
    "record on a device": ("bench --json /dev/null", "cannot write /dev/null"),
    "prompt without end": ("generate --file /dev/zero", "/dev/zero must hold at most"),
    "unknown attention": ("bench --attention sparse", "sparse"),
    "unknown flag": ("bench --speed 9", "--speed"),
    "unknown command": ("serve", "serve"),
}

BAD_FILES = {
    "not UTF-8": ("p.txt", b"ok\n\xff\xfe\n", "p.txt is not UTF-8 text: byte 3 is 0xff"),
    "no prompt": ("p.txt", b"\n \n", "holds no prompt"),
    "not JSON": ("p.jsonl", b'{"prompt": "a"}\n{', "p.jsonl, prompt 2 is not JSON"),
    "nested without end": ("p.jsonl", b"[" * 99999 + b"]" * 99999, "prompt 1 is not JSON"),
    "key that drives the terminal": ("p.jsonl", b'{"prompt": "a", "\\u001b[2J": 1}', "unknown key '\\x1b[2J'"),
    "neither text nor tokens": ("p.jsonl", b"{}", "must be an object with"),
    "both text and tokens": ("p.jsonl", b'{"prompt": "a", "tokens": [1]}', "must be an object with"),
    "unknown key": ("p.jsonl", b'{"prompt": "a", "speed": 1}', "unknown key 'speed'"),
    "negative token": ("p.jsonl", b'{"tokens": [1, -2]}', "tokens[1]=-2"),
    "token outside the vocabulary": ("p.jsonl", b'{"tokens": [1, 256]}', "tokens[1]=256 must be in [0, 255]"),
    "no tokens": ("p.jsonl", b'{"tokens": []}', "at least one token"),
    "tokens that are text": ("p.jsonl", b'{"tokens": ["a"]}', "must hold integers"),
    "empty text": ("p.jsonl", b'{"prompt": ""}', "not empty"),
    "length that is no number": ("p.jsonl", b'{"prompt": "a", "max_tokens": true}', "max_tokens=True"),
    "prompt longer than the pool": ("p.txt", b"x" * 65, "the pool holds 64"),
}


@pytest.mark.parametrize(("line", "says"), BAD_FLAGS.values(), ids=BAD_FLAGS.keys())
def test_bad_flags(
    line: str,
    says: str,
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert opened.run(*shlex.split(line)) == 2

    out, err = capsys.readouterr()
    assert says in " ".join(err.split())
    assert (out, list(tmp_path.iterdir()), opened.models) == ("", [], [])


@pytest.mark.parametrize(("name", "content", "says"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_prompt_files(
    name: str, content: bytes, says: str, opened: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)

    code = opened.run("bench", "--prompts", tmp_path / name, "--output-len", 2, "--json", tmp_path / "out.json")

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("tidegate: ") and says in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_older_record_survives_a_failed_run(opened: Opened, tmp_path: Path) -> None:
    record = tmp_path / "out.json"
    record.write_text("older")

    assert opened.run("bench", "--input-len", 65, "--json", record) == 2

    assert record.read_text() == "older"


def test_an_error_cannot_drive_the_terminal(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert opened.run("generate", "--file", "\x1b[2Jno\x07\x1b]0;title\x07") == 2

    err = capsys.readouterr().err
    assert err.strip().isprintable() and "\\x1b[2Jno\\x07" in err


def test_a_closed_output_is_no_traceback(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr("sys." + name, None)

    assert opened.run("generate", "hi", "--max-tokens", 2) == 0
    assert opened.run("generate") == 2


def test_a_full_disk_is_no_traceback(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        monkeypatch.setattr("sys.stdout", full)
        code = opened.run("generate", "hi", "--max-tokens", 2)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()

    assert code == 2
    assert "No space left" in capsys.readouterr().err
