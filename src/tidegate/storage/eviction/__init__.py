"""Which evictable page goes first: lowest retention, then by the policy that the settings name."""

from tidegate.storage.eviction.policy import EvictionPolicy, PageFacts, PolicyMaker, Validity
from tidegate.storage.eviction.registry import check_policy, policy_maker, policy_names

__all__ = [
    "EvictionPolicy",
    "PageFacts",
    "PolicyMaker",
    "Validity",
    "check_policy",
    "policy_maker",
    "policy_names",
]
