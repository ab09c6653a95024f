"""A model served by several ranks, one of them in this process. Imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from tidegate.base import Int32Array, OutOfPages, RankError, SystemClock
from tidegate.bench import TargetStatistics
from tidegate.cli.page_meter import MeteredEngine
from tidegate.cli.runtime_model import encode, model_context, runtime_config
from tidegate.cli.settings import ModelSettings
from tidegate.request import Request, TokenDelta
from tidegate.runtime.group import Exchange, GroupEnvironment, RankGroup, build_group
from tidegate.runtime.group.distributed import DistributedExchange
from tidegate.runtime.model import load_model
from tidegate.runtime.text_streams import TextStreams


class GroupModel:
    """What rank 0 sees of the group: requests go in here and come out here, wherever they are served."""

    def __init__(self, group: RankGroup, engine: MeteredEngine, text: TextStreams) -> None:
        self.group = group
        self._meter = engine.watch(group.ranks[0].manager)
        self._text = text
        self._vocab_size = engine.vocab_size

    @classmethod
    def open(cls, settings: ModelSettings, exchange: Exchange) -> GroupModel:
        """Load the model for the rank of this process."""
        config = runtime_config(settings, model_context(settings))
        reference, text = load_model(config.model)
        clock = SystemClock()
        engine = MeteredEngine(reference, clock)
        return cls(build_group([engine], exchange, config, text=text, clock=clock), engine, text)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._vocab_size

    def encode(self, text: str, *, chat: bool) -> Int32Array:
        """Turn text into token ids, as a user's turn of the model's chat template if asked."""
        return encode(self._text, text, chat=chat)

    def submit(self, request: Request) -> None:
        """Hand a request to the router; its tokens are wanted as they come."""
        self.group.submit(request, stream=True)

    def step(self) -> Sequence[TokenDelta]:
        """Take one step with all ranks. Raises ``OutOfPages`` when nothing can go on here."""
        deltas = self.group.step()
        stall = self.group.ranks[0].session.stall
        if stall is not None:
            raise OutOfPages(str(stall), request_id=stall.wait.request_id, shortage=stall.wait.shortage)
        return deltas

    def rest(self, most_s: float | None) -> None:
        """Do nothing: other ranks may have work, and a step waits for them anyway."""

    def statistics(self) -> TargetStatistics:
        """Return what the meter counted on this rank, and how evenly all were loaded."""
        counted = self._meter.statistics(self.group.ranks[0].session.statistics().suspended)
        meter = self.group.meter
        return replace(counted, balance_ratio=meter.ratio, balance_ratio_by_time=meter.ratio_by_time)


def join() -> DistributedExchange:
    """Join the group that the environment names."""
    return DistributedExchange(GroupEnvironment.read(os.environ), data_backend=None)  # no engine here needs one


def serve(group: RankGroup) -> None:
    """Step with the others until rank 0 says that it is over."""
    with closing(group):
        while not group.is_stopped:
            group.step()


@contextmanager
def leading(group: RankGroup) -> Iterator[None]:
    """Stop the other ranks when the block ends, unless one of them is lost."""
    try:
        yield
        _stop(group)
    except RankError:
        raise
    except Exception:
        with suppress(RankError):
            _stop(group)
        raise
    finally:
        group.close()


def _stop(group: RankGroup) -> None:
    group.stop()
    while not group.is_stopped:
        group.step()
