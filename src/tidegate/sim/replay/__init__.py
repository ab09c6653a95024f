"""A workload against the production cache alone: hit rates by policy and size, and how far they are from the best."""

from tidegate.sim.replay.belady import Bound, best_possible
from tidegate.sim.replay.cached import ReplayResult, replay
from tidegate.sim.replay.checkpoints import CheckpointRow, CheckpointSpec, compare_checkpoints, windowed_layers
from tidegate.sim.replay.paths import Paths, block_paths
from tidegate.sim.replay.spec import ReplaySpec
from tidegate.sim.replay.table import ReplayRow, ReplayTable, replay_table

__all__ = [
    "Bound",
    "CheckpointRow",
    "CheckpointSpec",
    "Paths",
    "ReplayResult",
    "ReplayRow",
    "ReplaySpec",
    "ReplayTable",
    "best_possible",
    "block_paths",
    "compare_checkpoints",
    "replay",
    "replay_table",
    "windowed_layers",
]
