"""Linear layers whose weights oneDNN has laid out once for its own kernels, instead of at every call.

The two operators are private to torch: where they are absent or refuse a weight, the layer stays as it was.
"""

from __future__ import annotations

import logging

import torch

_LOG = logging.getLogger(__name__)
_ROWS_HINT = 32
"""The batch size the layout is chosen for; any other works."""


class PackedLinear(torch.nn.Module):
    """A linear layer for inference on the CPU."""

    def __init__(self, packed: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self._packed = packed
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x @ weight.T + bias``."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


def pack_linear_layers(model: torch.nn.Module) -> int:
    """Replace every ``nn.Linear`` of the model that can be packed; return how many were."""
    targets = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is torch.nn.Linear
    ]
    packed = 0
    with torch.no_grad():
        for parent, name, child in targets:
            try:
                weight = torch.ops.mkldnn._reorder_linear_weight(child.weight.detach(), _ROWS_HINT)
                layer = PackedLinear(weight, child.bias)
                layer(child.weight.new_zeros(1, child.in_features))
            except (RuntimeError, AttributeError) as error:
                _LOG.info("linear layer %s stays unpacked: %s", name, error)
                continue
            setattr(parent, name, layer)
            packed += 1
    return packed
