"""The door between a ``transformers`` model and us: one registered attention function.

The model passes unknown keyword arguments of its forward down to every attention layer; the object that attends travels
there, so two engines in one process never meet.
"""

from __future__ import annotations

from typing import Protocol

import torch
from transformers import AttentionInterface

from tidegate.base import EngineError
from tidegate.engine.reference.attention import LayerCall

ATTENTION_NAME = "tidegate_paged"


class Attends(Protocol):
    """What answers the model's attention layers during one forward."""

    def attend(self, call: LayerCall) -> torch.Tensor:
        """Return ``[T, heads, value_dim]``."""
        ...


def register_attention() -> None:
    """Make ``attn_implementation="tidegate_paged"`` known to transformers; calling again changes nothing.

    A name without a mask function makes transformers skip mask creation, which is what a paged layout needs.
    """
    AttentionInterface.register(ATTENTION_NAME, _forward_to_pages)


def _forward_to_pages(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    tidegate: Attends | None = None,
    **_unused: object,
) -> tuple[torch.Tensor, None]:
    if tidegate is None:
        raise EngineError(f"{type(module).__name__} was not handed the step: this model drops keyword arguments")
    call = LayerCall(
        layer_id=_layer_index(module),
        query=query,
        key=key,
        value=value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
        sink_logits=s_aux,
    )
    return tidegate.attend(call).unsqueeze(0), None


def _layer_index(module: torch.nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise EngineError(f"{type(module).__name__} has no layer_idx")
    return index
