"""``tidegate replay``: a trace against the cache alone, by policy and size, beside the best that is possible."""

from __future__ import annotations

from tidegate.cli import replay_flags, sim_flags


def replay(
    trace: replay_flags.TraceArgument,
    *,
    format: replay_flags.FormatFlag = "mooncake",
    limit: replay_flags.LimitFlag = None,
    pool_blocks: replay_flags.PoolBlocksFlag = "1000,3000,10000,20000,50000",
    policy: replay_flags.PolicyFlag = None,
    block_tokens: replay_flags.BlockTokensFlag = 512,
    concurrency: replay_flags.ConcurrencyFlag = 1,
    outputs: replay_flags.OutputsFlag = True,
    belady: replay_flags.BeladyFlag = True,
    out: replay_flags.OutFlag = None,
    figures: sim_flags.FiguresFlag = True,
    progress: sim_flags.ProgressFlag = True,
) -> None:
    """Replay a trace against the cache alone: hit rates by size and policy, against Belady's bound."""
    # Here, because help and bad flags must answer at once.
    from tidegate.cli.replay_run import ReplayRun
    from tidegate.sim.replay import ReplaySpec

    spec = ReplaySpec(
        pool_blocks=replay_flags.read_sizes(pool_blocks),
        policies=replay_flags.read_names(policy),
        block_tokens=block_tokens,
        concurrency=concurrency,
        with_outputs=outputs,
    )
    ReplayRun(
        trace={"trace": str(trace), "format": format, **({} if limit is None else {"limit": limit})},
        spec=spec,
        with_bound=belady,
        out=out,
        with_figures=figures,
        shows_progress=progress,
    ).start()
