"""Which rank serves a request: a pure choice that every rank makes alike from gathered loads."""

from tidegate.routing.config import RoutingConfig
from tidegate.routing.conversation import ConversationAffinity
from tidegate.routing.least_tokens import LeastTokens
from tidegate.routing.loads import RankLoads
from tidegate.routing.prefix_affinity import PrefixAffinity
from tidegate.routing.rebalancing import Move, WaitingRequest, moves
from tidegate.routing.router import Assignment, Router, Routing, check_target
from tidegate.routing.selection import router_of

__all__ = [
    "Assignment",
    "ConversationAffinity",
    "LeastTokens",
    "Move",
    "PrefixAffinity",
    "RankLoads",
    "Router",
    "Routing",
    "RoutingConfig",
    "WaitingRequest",
    "check_target",
    "moves",
    "router_of",
]
