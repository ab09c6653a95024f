"""``tidegate bench``: a load at a model, and a table of what happened."""

from __future__ import annotations

import typer

from tidegate.bench import Load
from tidegate.cli import bench_flags, flags
from tidegate.cli.bench_run import BenchRun
from tidegate.cli.bench_scope import check_given
from tidegate.cli.config_file import read_config
from tidegate.cli.deferral_bench import DeferralBench
from tidegate.cli.deferral_cells import POOL_SHARE, DeferralLoad
from tidegate.cli.prompt_source import PromptSource
from tidegate.cli.settings import ModelSettings

_CONCURRENCY = 8


def bench(
    ctx: typer.Context,
    *,
    prompts: bench_flags.PromptsFlag = None,
    input_len: bench_flags.InputLenFlag = 256,
    output_len: bench_flags.OutputLenFlag = 64,
    shared_len: bench_flags.SharedLenFlag = 0,
    num_requests: bench_flags.NumRequestsFlag = None,
    concurrency: bench_flags.ConcurrencyFlag = None,
    request_rate: bench_flags.RequestRateFlag = None,
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
    ranks: bench_flags.RanksFlag = None,
    config: bench_flags.ConfigFlag = None,
    scenario: bench_flags.ScenarioFlag = None,
    engine: bench_flags.EngineFlag = bench_flags.ScenarioEngine.FAKE,
    pool_share: bench_flags.PoolShareFlag = POOL_SHARE,
    json: bench_flags.JsonFlag = None,
    figure: bench_flags.FigureFlag = None,
) -> None:
    """Send prompts at a model and show latency, throughput, cache hits and pages."""
    check_given(ctx, is_scenario=scenario is not None)
    if scenario is not None:
        cells = DeferralLoad.of(engine.value, ranks, num_requests, concurrency, pool_share=pool_share, seed=seed)
        return DeferralBench(cells, engine.value, model).write(json, figure)
    settings = ModelSettings(
        model=model,
        attention=attention.value,
        window=window,
        sinks=sinks,
        dtype=dtype.value,
        block_size=block_size,
        chunk_size=chunk_size,
        scratch=scratch,
        max_sequences=_CONCURRENCY if concurrency is None else concurrency,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        seed=seed,
        overrides={} if config is None else read_config(config),
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
    load = Load(concurrency=settings.max_sequences, request_rate=request_rate, seed=seed)
    BenchRun(settings, source, load, ranks).start(ctx.obj, json, figure)
