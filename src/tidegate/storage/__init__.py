"""Bytes and places: slots, pools, memory, eviction order. Knows no token and no sequence."""

from tidegate.storage.eviction import (
    EvictionPolicy,
    PageFacts,
    PolicyMaker,
    Validity,
    check_policy,
    policy_maker,
    policy_names,
)
from tidegate.storage.memory import HostMemory, Memory
from tidegate.storage.pool_group import PoolGroup, PoolGroupSpec
from tidegate.storage.slots import FreeStack

__all__ = [
    "EvictionPolicy",
    "FreeStack",
    "HostMemory",
    "Memory",
    "PageFacts",
    "PolicyMaker",
    "PoolGroup",
    "PoolGroupSpec",
    "Validity",
    "check_policy",
    "policy_maker",
    "policy_names",
]
