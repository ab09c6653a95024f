"""From settings to a router."""

from __future__ import annotations

from tidegate.routing.config import NewConversationPlacement, RoutingConfig
from tidegate.routing.conversation import ConversationAffinity
from tidegate.routing.least_tokens import LeastTokens
from tidegate.routing.prefix_affinity import PrefixAffinity
from tidegate.routing.router import Router


def router_of(config: RoutingConfig) -> Router:
    """Return a new router; each rank needs one of its own."""
    if config.policy == "conversation":
        return ConversationAffinity(_placing(config, config.new_conv_placement), config.max_sessions)
    return _placing(config, config.policy)


def _placing(config: RoutingConfig, name: NewConversationPlacement) -> LeastTokens | PrefixAffinity:
    if name == "least_tokens":
        return LeastTokens(config.fair_share_multiplier)
    return PrefixAffinity(config.load_balance_weight, config.match_rate_threshold, config.fair_share_multiplier)
