"""``tidegate generate``: a prompt in, streamed text out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO

import typer

from tidegate.base import ConfigError, EngineError
from tidegate.cli import flags
from tidegate.cli.prompt_file import decode, read_text
from tidegate.cli.served_model import ServedModel
from tidegate.cli.settings import ModelSettings, require
from tidegate.request import FinishReason, Request, RequestOutput, SamplingParams


def generate(
    ctx: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - or nothing reads it from stdin.")] = None,
    *,
    file: Annotated[Path | None, typer.Option(help="Read the prompt from this file.", show_default=False)] = None,
    model: flags.ModelFlag = None,
    attention: flags.AttentionFlag = flags.Attention.FULL,
    window: flags.WindowFlag = 128,
    sinks: flags.SinksFlag = 4,
    dtype: flags.DtypeFlag = flags.Dtype.FLOAT32,
    block_size: flags.BlockSizeFlag = 32,
    chunk_size: flags.ChunkSizeFlag = 512,
    scratch: flags.ScratchFlag = True,
    kv_cache_memory_bytes: flags.MemoryFlag = 1 << 30,
    chat: flags.ChatFlag = False,
    max_tokens: flags.MaxTokensFlag = 128,
    temperature: flags.TemperatureFlag = 0.0,
    top_k: flags.TopKFlag = 0,
    top_p: flags.TopPFlag = 1.0,
    min_p: flags.MinPFlag = 0.0,
    repetition_penalty: flags.RepetitionFlag = 1.0,
    stop: flags.StopFlag = None,
    seed: flags.SeedFlag = 0,
) -> None:
    """Continue a prompt and stream the text."""
    sampling = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    settings = ModelSettings(
        model=model,
        attention=attention.value,
        window=window,
        sinks=sinks,
        dtype=dtype.value,
        block_size=block_size,
        chunk_size=chunk_size,
        scratch=scratch,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        seed=seed,
    )
    require("--max-tokens", max_tokens, 1)
    text = read_prompt(prompt, file, sys.stdin.buffer)
    served: ServedModel = ctx.obj(settings)
    request = Request(
        request_id="generate",
        prompt=served.encode(text, chat=chat),
        sampling=sampling,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
    )
    stream(served, request, sys.stdout)


def read_prompt(prompt: str | None, file: Path | None, stdin: BinaryIO) -> str:
    """Return the prompt from where the flags say it is."""
    if prompt is not None and file is not None:
        raise ConfigError("give the prompt either as an argument or with --file, not both")
    if file is not None:
        text = read_text(file)
    elif prompt is None or prompt == "-":
        text = decode(stdin, "stdin")
    else:
        text = prompt
    if not text.strip():
        raise ConfigError("the prompt is empty: give it as an argument, with --file, or on stdin")
    return text


def stream(served: ServedModel, request: Request, out: TextIO) -> None:
    """Run one request, writing its text as it comes; say on stderr when it ended for lack of room."""
    served.submit(request)
    output: RequestOutput | None = None
    while output is None:
        for delta in served.step():
            out.write(delta.text)
            out.flush()
            output = delta.output or output
    out.write("\n")
    if output.finish_reason is FinishReason.ERROR:
        raise EngineError(output.error or "the engine failed", request_id=request.request_id)
    if output.finish_reason is FinishReason.CAPACITY:
        print(f"tidegate: stopped after {output.num_tokens} tokens: no room for more", file=sys.stderr)
