"""The KV cache: layer groups, cursors, prefix tree, reservations. ``KVCacheManager`` is the only door."""

from tidegate.cache.candidate import Candidate
from tidegate.cache.config import KVCacheConfig
from tidegate.cache.groups import LayerGroup
from tidegate.cache.joint import JointReservation, reserve_all
from tidegate.cache.manager import KVCacheManager
from tidegate.cache.model_layers import ModelCacheOptions
from tidegate.cache.nodes import ReuseScope
from tidegate.cache.prefix import PrefixMatch
from tidegate.cache.quote import Quote
from tidegate.cache.ranges import window_peak
from tidegate.cache.reservation import Reservation
from tidegate.cache.sequence_cache import Sequence
from tidegate.cache.statistics import GroupStatistics, PoolStatistics, ScopeStatistics, Statistics
from tidegate.cache.step_pages import PageCopies, StepPages
from tidegate.cache.views import CsrTables

__all__ = [
    "Candidate",
    "CsrTables",
    "GroupStatistics",
    "JointReservation",
    "KVCacheConfig",
    "KVCacheManager",
    "LayerGroup",
    "ModelCacheOptions",
    "PageCopies",
    "PoolStatistics",
    "PrefixMatch",
    "Quote",
    "Reservation",
    "ReuseScope",
    "ScopeStatistics",
    "Sequence",
    "Statistics",
    "StepPages",
    "reserve_all",
    "window_peak",
]
