"""Accept or refuse a request before anything is queued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.base import RequestTooLong
from tidegate.cache import KVCacheManager, ReuseScope
from tidegate.request import Request, check_vocabulary


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What the scheduler must know of a model."""

    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()

    def stop_ids(self, request: Request) -> tuple[int, ...]:
        """Return the tokens that end ``request``."""
        ends = () if request.ignore_eos else self.eos_token_ids
        return tuple(dict.fromkeys((*ends, *request.stop_token_ids)))


def reuse_scope(request: Request) -> ReuseScope:
    """Return the scope within which a request shares cached prefixes."""
    return ReuseScope(lora_id=request.lora_id, salt=request.salt, lora_version=request.lora_version)


def check_tokens(request: Request, model: ModelLimits) -> None:
    """Raise ``ConfigError`` for token ids outside the vocabulary."""
    check_vocabulary(request.prompt, model.vocab_size)
    if request.stop_token_ids:
        check_vocabulary(np.array(request.stop_token_ids, dtype=np.int32), model.vocab_size, field="stop_token_ids")


def check_prompt_length(request: Request, limit: int | None) -> None:
    """Raise ``RequestTooLong`` for a prompt of more than ``limit`` tokens."""
    if limit is not None and request.num_prompt_tokens > limit:
        raise RequestTooLong(
            f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens are above "
            f"max_prompt_tokens={limit}",
            request_id=request.request_id,
            prompt_tokens=request.num_prompt_tokens,
            max_prompt_tokens=limit,
        )


def reachable_length(request: Request, manager: KVCacheManager) -> int:
    """Return how many tokens the request can ever have, prompt included, were it alone.

    The last token's keys and values are never needed, so ``n`` tokens take ``n - 1`` positions. Raises
    ``RequestTooLong`` when that is less than asked for, unless the request is to run as far as it can.
    """
    limit = manager.config.max_seq_len
    wanted = request.max_length
    if wanted <= limit and manager.plan.fits_alone(wanted - 1):
        return wanted
    if request.run_to_capacity:
        return min(wanted, limit, manager.plan.longest_alone() + 1)
    facts = f"max_seq_len={limit}" if wanted > limit else manager.plan.shortfall_alone(wanted - 1)
    raise RequestTooLong(
        f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens and max_tokens="
        f"{request.max_tokens} make {wanted} tokens, which can never fit: {facts}",
        request_id=request.request_id,
        prompt_tokens=request.num_prompt_tokens,
        max_tokens=request.max_tokens,
        max_seq_len=limit,
    )


def check_servable(request: Request, manager: KVCacheManager, model: ModelLimits, most: int | None) -> None:
    """Raise ``ConfigError`` or ``RequestTooLong`` for a request that can never be served here."""
    check_tokens(request, model)
    check_prompt_length(request, most)
    reachable_length(request, manager)
