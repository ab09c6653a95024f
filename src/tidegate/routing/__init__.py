"""Which rank serves a request. Pure: loads and requests in, assignments out."""

from tidegate.routing.config import RoutingConfig, RoutingPolicyName
from tidegate.routing.loads import RankLoads
from tidegate.routing.router import Assignment, Router, Routing, check_target
from tidegate.routing.routers import ConversationAffinity, LeastTokens, PrefixAffinity, router_of

__all__ = [
    "Assignment",
    "ConversationAffinity",
    "LeastTokens",
    "PrefixAffinity",
    "RankLoads",
    "Router",
    "Routing",
    "RoutingConfig",
    "RoutingPolicyName",
    "check_target",
    "router_of",
]
