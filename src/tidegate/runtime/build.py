"""The only wiring: from settings and an engine to a session."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.base import Clock, ConfigError, Retention, SystemClock, check_integer, check_tuple
from tidegate.cache import KVCacheConfig, KVCacheManager
from tidegate.engine import Engine, StepInput
from tidegate.runtime.config import RuntimeConfig
from tidegate.runtime.deferral import deferral_of
from tidegate.runtime.drawing import Drawer, GreedyDrawer
from tidegate.runtime.session import Session
from tidegate.runtime.step import StepLoop
from tidegate.runtime.worker import InlineWorker, ThreadWorker, Worker
from tidegate.scheduling import DraftSource, ModelLimits, NgramDrafts, Scheduler

if TYPE_CHECKING:
    from tidegate.runtime.text_streams import TextStreams


def cache_config(engine: Engine, config: RuntimeConfig, *, num_extra_rows: int = 0) -> KVCacheConfig:
    """Return the cache's configuration for an engine's layers; a step's drafts can be taken back in it.

    It has ``num_extra_rows`` rows more than ``max_batch_size`` sequences need.
    """
    cache, scheduler, num_drafts = config.cache, config.scheduler, config.speculation.num_speculative_tokens
    layers = engine.kv_layers()
    if num_drafts and any(layer.retention is Retention.STATE for layer in layers):
        raise ConfigError(
            f"num_speculative_tokens={num_drafts} must be 0 for a model with state layers: their state cannot be taken "
            "back to before a wrong draft (max_rewind_len=0)",
            field="num_speculative_tokens",
            value=num_drafts,
        )
    return KVCacheConfig(
        layers=layers,
        max_sequences=scheduler.max_batch_size + num_extra_rows,
        max_seq_len=cache.max_seq_len,
        device_bytes=None if cache.pool_slots is not None else cache.device_bytes,
        pool_slots=cache.pool_slots,
        tokens_per_block=cache.tokens_per_block,
        max_open_steps=2 if config.loop.overlap else 1,
        max_rewind_len=num_drafts,
        max_chunk_tokens=min(scheduler.max_chunk_tokens or scheduler.max_num_tokens, cache.max_seq_len),
        swa_scratch_reuse=cache.swa_scratch_reuse,
        enable_prefix_caching=cache.enable_prefix_caching,
        enable_partial_reuse=cache.enable_partial_reuse,
        window_checkpoints=cache.window_checkpoints,
        publish=cache.publish,
        reuse_unit_tokens=cache.reuse_unit_tokens,
        max_util_for_resume=cache.max_util_for_resume,
        separate_pools=cache.separate_pools,
        eviction_policy=cache.eviction_policy,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What stands in for the usual parts: a simulated engine needs no memory, draws by rule, and has no thread."""

    drawer: Drawer | None = None
    worker: Worker | None = None
    with_memory: bool = True


USUAL = Parts()


def build_manager(
    engine: Engine, config: RuntimeConfig, *, num_extra_rows: int = 0, with_memory: bool = True
) -> KVCacheManager:
    """Build the cache for an engine and hand the engine its pools."""
    manager = KVCacheManager(cache_config(engine, config, num_extra_rows=num_extra_rows), with_memory=with_memory)
    engine.bind(manager.layout, manager.pools)
    return manager


@dataclass(frozen=True, slots=True, eq=False)
class Wired:
    """A session and the parts behind it."""

    scheduler: Scheduler
    loop: StepLoop
    session: Session


def build_session(
    engine: Engine,
    manager: KVCacheManager,
    config: RuntimeConfig,
    *,
    eos_token_ids: tuple[int, ...] = (),
    text: TextStreams | None = None,
    clock: Clock | None = None,
    drafts: DraftSource | None = None,
) -> Session:
    """Wire a session around an engine that is bound to the cache. ``text`` brings its own end tokens.

    ``drafts`` stands in for prompt look-up; it needs ``num_speculative_tokens`` as large as its own number.
    """
    return wire(engine, manager, config, eos_token_ids=eos_token_ids, text=text, clock=clock, drafts=drafts).session


def wire(
    engine: Engine,
    manager: KVCacheManager,
    config: RuntimeConfig,
    *,
    eos_token_ids: tuple[int, ...] = (),
    text: TextStreams | None = None,
    clock: Clock | None = None,
    drafts: DraftSource | None = None,
    padding: StepInput | None = None,
    parts: Parts = USUAL,
) -> Wired:
    """Wire a session and return its parts too. ``padding`` is computed in steps that only other ranks fill."""
    clock = clock or SystemClock()
    check_tuple("eos_token_ids", eos_token_ids, int)
    for token in eos_token_ids:
        check_integer("eos_token_ids", token, 0, engine.vocab_size - 1)
    # A tokenizer may know more tokens than the model: those are never drawn.
    own = () if text is None else (token for token in text.end_tokens if token < engine.vocab_size)
    ends = tuple(dict.fromkeys((*eos_token_ids, *own)))
    speculation = config.speculation
    if drafts is None and speculation.num_speculative_tokens:
        drafts = NgramDrafts(
            speculation.prompt_lookup_max, speculation.prompt_lookup_min, speculation.num_speculative_tokens
        )
    scheduler = Scheduler(manager, config.scheduler, ModelLimits(engine.vocab_size, ends), drafts)
    drawer = parts.drawer or _drawer(manager.config.max_sequences, config.loop.seed)
    loop = StepLoop(
        scheduler,
        manager,
        engine,
        drawer,
        clock=clock,
        worker=parts.worker or (ThreadWorker() if config.loop.overlap else InlineWorker()),
        overlap=config.loop.overlap,
        deferral=deferral_of(config.loop.deferral, scheduler, manager),
        padding=padding,
    )
    return Wired(scheduler, loop, Session(scheduler, loop, drawer, clock=clock, text=text))


def _drawer(max_sequences: int, seed: int) -> Drawer:
    """Return the full sampler where torch is installed: without it the library still serves greedy requests."""
    if importlib.util.find_spec("torch") is None:
        return GreedyDrawer()
    from tidegate.runtime.sampled_drawing import SamplingDrawer  # needs torch, which is optional

    return SamplingDrawer(max_sequences, seed)
