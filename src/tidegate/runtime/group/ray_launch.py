"""Starts the ranks of a group as actors on a Ray cluster: placement and membership are Ray's, the group is ours.

The ranks see the same environment variables as under ``launch`` or ``torchrun``. The store lives in the driver, so it
survives any rank; actors end with the driver.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tidegate.base import ConfigError, check_integer, check_real, shown
from tidegate.runtime.group.environment import GroupEnvironment
from tidegate.runtime.group.exchange import MAX_RANKS
from tidegate.runtime.group.outcome import RankFailure, RanksOutcome
from tidegate.runtime.group.store import host_store, listen

_STORE_S = 60.0
_ALONE = {"LOCAL_RANK": "0"}
"""Ray shows each actor its own devices only."""


class _Rank:
    """The actor: a process that becomes a rank."""

    def run(self, variables: Mapping[str, str], entry: str, arguments: Sequence[str]) -> int:
        os.environ.update(variables)
        module, _, function = entry.partition(":")
        code = getattr(importlib.import_module(module), function)(list(arguments))
        return 0 if code is None else int(code)


def run_ranks_on_ray(
    num_ranks: int,
    entry: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    placing_s: float = 60.0,
    naming_s: float = 10.0,
) -> RanksOutcome:
    """Call ``entry`` ("module:function") with ``arguments`` in an actor per rank, and wait for all.

    The function takes a list of strings and returns an exit code, or None for 0; the module must be importable on the
    workers. ``num_cpus`` and ``num_gpus`` are per rank; ``ConfigError`` when the cluster has had no room for
    ``placing_s``. When a rank ends badly, the others have ``naming_s`` to end by themselves. Joins the cluster that
    Ray is connected to; without one, starts Ray here and stops it in the end.
    """
    _check(num_ranks, entry, num_cpus, num_gpus)
    is_ours = not ray.is_initialized()
    if is_ours:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(include_dashboard=False)
    room: PlacementGroup | None = None
    actors: list[Any] = []
    try:
        room = _reserve(num_ranks, {"CPU": num_cpus, "GPU": num_gpus}, placing_s)
        address = ray.util.get_node_ip_address()
        listener = listen(address)
        port = listener.getsockname()[1]
        store = host_store(address, listener, _STORE_S)
        strategy = PlacementGroupSchedulingStrategy(room)
        actor_class = ray.remote(_Rank).options(num_cpus=num_cpus, num_gpus=num_gpus, scheduling_strategy=strategy)
        actors += [actor_class.remote() for _ in range(num_ranks)]
        calls = []
        for rank, actor in enumerate(actors):
            own = GroupEnvironment(rank, num_ranks, address, port, is_store_hosted=True).variables()
            calls.append(actor.run.remote({**(environment or {}), **own, **_ALONE}, entry, list(arguments)))
        outcome = _wait(calls, naming_s)
        del store  # it was needed until here
        return outcome
    finally:
        for actor in actors:
            ray.kill(actor)
        if room is not None:
            remove_placement_group(room)
        if is_ours:
            ray.shutdown()


def _check(num_ranks: int, entry: str, num_cpus: float, num_gpus: float) -> None:
    check_integer("num_ranks", num_ranks, 1, MAX_RANKS)
    check_real("num_cpus", num_cpus, 0.0, 4096.0, is_low_open=True)
    check_real("num_gpus", num_gpus, 0.0, 64.0)
    module, _, function = entry.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ConfigError(f"entry={shown(entry)} must be 'module:function'", field="entry", value=entry)


def _reserve(num_ranks: int, resources: Mapping[str, float], placing_s: float) -> PlacementGroup:
    """Reserve room for all ranks or none."""
    bundle = {name: amount for name, amount in resources.items() if amount > 0}
    room = placement_group([bundle] * num_ranks, strategy="PACK")
    try:
        ray.get(room.ready(), timeout=placing_s)
    except GetTimeoutError as error:
        remove_placement_group(room)
        message = f"num_ranks={num_ranks} must fit the cluster: no room for {bundle} each within {placing_s:g} s"
        raise ConfigError(message, field="num_ranks", value=num_ranks, available=ray.available_resources()) from error
    return room


def _wait(calls: Sequence[Any], naming_s: float) -> RanksOutcome:
    """Wait for all calls; after the first failure, for ``naming_s`` at most."""
    failures: list[RankFailure] = []
    running = {call: rank for rank, call in enumerate(calls)}
    deadline = float("inf")
    while running and time.monotonic() < deadline:
        timeout_s = None if deadline == float("inf") else max(0.0, deadline - time.monotonic())
        ended, _ = ray.wait(list(running), num_returns=1, timeout=timeout_s)
        for call in ended:
            failure = _failure(running.pop(call), call)
            if failure is not None:
                failures.append(failure)
                deadline = min(deadline, time.monotonic() + naming_s)
    return RanksOutcome(tuple(failures), tuple(sorted(running.values())))


def _failure(rank: int, call: Any) -> RankFailure | None:
    try:
        code = ray.get(call)
    except RayTaskError as error:
        return RankFailure(rank, 1, f"raised {error.cause!r}")
    except RayActorError as error:
        return RankFailure(rank, 1, f"the actor died: {str(error).splitlines()[0]}")
    return RankFailure(rank, code) if code else None
