"""``tidegate bench``: a load at a model, and a table of what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.bench import Load
from tidegate.cli import flags
from tidegate.cli.bench_run import BenchRun
from tidegate.cli.prompt_source import PromptSource
from tidegate.cli.settings import ModelSettings

_LOAD = "Load"
_OUTPUT = "Output"


def bench(
    ctx: typer.Context,
    *,
    prompts: Annotated[
        Path | None, typer.Option(help="One prompt per line, or .jsonl.", rich_help_panel=_LOAD, show_default=False)
    ] = None,
    input_len: Annotated[int, typer.Option(help="Tokens of a synthetic prompt.", rich_help_panel=_LOAD)] = 256,
    output_len: Annotated[int, typer.Option(help="Tokens to produce for each.", rich_help_panel=_LOAD)] = 64,
    shared_len: Annotated[int, typer.Option(help="Of a synthetic prompt, the same in all.", rich_help_panel=_LOAD)] = 0,
    num_requests: Annotated[
        int | None,
        typer.Option(help="Default: every prompt once, or 16.", rich_help_panel=_LOAD, show_default=False),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Most requests in flight.", rich_help_panel=_LOAD)] = 8,
    request_rate: Annotated[
        float | None,
        typer.Option(
            help="Requests a second, Poisson. Default: the next when one ended.",
            rich_help_panel=_LOAD,
            show_default=False,
        ),
    ] = None,
    chat: flags.ChatFlag = False,
    seed: flags.SeedFlag = 0,
    model: flags.ModelFlag = None,
    attention: flags.AttentionFlag = flags.Attention.HYBRID,
    window: flags.WindowFlag = 128,
    sinks: flags.SinksFlag = 4,
    dtype: flags.DtypeFlag = flags.Dtype.FLOAT32,
    block_size: flags.BlockSizeFlag = 32,
    chunk_size: flags.ChunkSizeFlag = 512,
    scratch: flags.ScratchFlag = True,
    kv_cache_memory_bytes: flags.MemoryFlag = 1 << 30,
    json: Annotated[Path | None, typer.Option(help="Write everything.", rich_help_panel=_OUTPUT)] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw pages over time, PNG.", rich_help_panel=_OUTPUT)] = None,
) -> None:
    """Send prompts at a model and show latency, throughput, cache hits and pages."""
    settings = ModelSettings(
        model=model,
        attention=attention.value,
        window=window,
        sinks=sinks,
        dtype=dtype.value,
        block_size=block_size,
        chunk_size=chunk_size,
        scratch=scratch,
        max_sequences=concurrency,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        seed=seed,
    )
    source = PromptSource(
        file=prompts,
        input_len=input_len,
        output_len=output_len,
        shared_len=shared_len,
        num_requests=num_requests,
        chat=chat,
        seed=seed,
    )
    load = Load(concurrency=concurrency, request_rate=request_rate, seed=seed)
    BenchRun(settings, source, load).write(ctx.obj, json, figure)
