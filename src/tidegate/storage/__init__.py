"""Bytes and places: slots, pools, memory, eviction order. Knows no token and no sequence."""

from tidegate.storage.eviction import EvictionPolicy, RetentionLru, Validity
from tidegate.storage.memory import HostMemory, Memory
from tidegate.storage.pool_group import PoolGroup, PoolGroupSpec
from tidegate.storage.slots import FreeStack

__all__ = [
    "EvictionPolicy",
    "FreeStack",
    "HostMemory",
    "Memory",
    "PoolGroup",
    "PoolGroupSpec",
    "RetentionLru",
    "Validity",
]
