"""Reads prompts: a text file with one prompt per line, or JSON lines of text or token ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tidegate.base import ConfigError, Int32Array, shown
from tidegate.request import token_array

MAX_BYTES = 1 << 28
_LEGAL = 'an object with "prompt" (text) or "tokens" (ids), and optionally "max_tokens"'


@dataclass(frozen=True, slots=True, eq=False)
class PromptLine:
    """One prompt: text, or token ids where the file gives those; ``max_tokens`` None leaves it to the flags."""

    prompt: str | Int32Array
    max_tokens: int | None = None


def read_text(path: Path) -> str:
    """Read a file as UTF-8; raises ``ConfigError`` naming the file and the first bad byte."""
    try:
        with path.open("rb") as file:
            return decode(file, str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    except ValueError as error:  # a path that is none
        raise ConfigError(f"cannot read {shown(str(path))}: {error}", path=str(path)) from error


def decode(file: BinaryIO, name: str) -> str:
    """Read a file to its end as UTF-8, lines ending as they do here, unless that never comes."""
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name} must hold at most {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x} ({error.reason})"
        ) from error


def read_prompts(path: Path) -> list[PromptLine]:
    """Read every prompt of a file. ``.jsonl`` holds one object per line, anything else one prompt per line."""
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    if not lines:
        raise ConfigError(f"{path} holds no prompt", path=str(path))
    if path.suffix != ".jsonl":
        return [PromptLine(line) for line in lines]
    return [_parse(line, f"{path}, prompt {number}") for number, line in enumerate(lines, 1)]


def _parse(line: str, where: str) -> PromptLine:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(record, dict) or ("prompt" in record) == ("tokens" in record):
        raise ConfigError(f"{where} must be {_LEGAL}")
    unknown = sorted(set(record) - {"prompt", "tokens", "max_tokens"})
    if unknown:
        raise ConfigError(f"{where} has the unknown key {shown(unknown[0])}; it must be {_LEGAL}")
    max_tokens = record.get("max_tokens")
    if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
        raise ConfigError(f"{where}: max_tokens={shown(max_tokens)} must be an integer of at least 1")
    if "tokens" in record:
        return PromptLine(token_array(record["tokens"], field=f"{where}: tokens"), max_tokens)
    if not isinstance(record["prompt"], str) or not record["prompt"]:
        raise ConfigError(f"{where}: prompt={shown(record['prompt'])} must be a text that is not empty")
    return PromptLine(record["prompt"], max_tokens)
