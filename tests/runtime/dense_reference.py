"""A model without pages: whole contexts through the attention of ``transformers``, and where its choice was close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from tidegate.engine.reference import WindowPattern

TIE = 1e-3


@dataclass(frozen=True, slots=True)
class NearTie:
    """``got`` was, or could be, drawn instead of ``best`` as the output's token number ``place``."""

    prompt: int
    place: int
    best: int
    got: int
    gap: float

    def __str__(self) -> str:
        return f"prompt {self.prompt}, output token {self.place}: {self.best} before {self.got} by {self.gap:.2e}"


@dataclass(frozen=True, slots=True)
class Continuation:
    """A greedy output: at each place the two likeliest tokens and how far their logits lie apart."""

    tokens: list[int]
    second: list[int]
    gaps: list[float]

    def near_ties(self, prompt: int) -> list[NearTie]:
        """List the places where the two likeliest tokens lie within the tolerance."""
        places = zip(self.tokens, self.second, self.gaps, strict=True)
        return [NearTie(prompt, i, best, got, gap) for i, (best, got, gap) in enumerate(places) if gap < TIE]


class DenseReference:
    """Runs whole contexts. With ``windows`` each layer's mask is written out, as the engine's pattern has it."""

    def __init__(self, model: PreTrainedModel, windows: WindowPattern | None = None) -> None:
        self._model = model.eval()
        if windows is not None:
            _mask_layers(model, windows)

    def logits(self, tokens: Sequence[int], *, last: int) -> torch.Tensor:
        """Return the logits after each of the ``last`` tokens."""
        with torch.inference_mode():
            result = self._model(input_ids=torch.tensor([tokens]), use_cache=False, logits_to_keep=last)
        logits: torch.Tensor = result.logits[0]
        return logits

    def generate(self, prompt: Sequence[int], count: int) -> Continuation:
        """Continue a prompt as ``transformers`` does it, past any end token."""
        with torch.inference_mode():
            result = self._model.generate(
                torch.tensor([prompt]),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = result.sequences[0, len(prompt) :].tolist()
        best = torch.cat(result.logits).topk(2)
        assert best.indices[:, 0].tolist() == tokens
        return Continuation(tokens, best.indices[:, 1].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist())

    def follow(self, index: int, prompt: Sequence[int], output: Sequence[int], begin: int = 0) -> list[NearTie]:
        """Check that from ``begin`` each token of an output is the likeliest after those before it, or nearly so."""
        logits = self.logits([*prompt, *output[:-1]], last=len(output) - begin)
        ties = []
        for place, (scores, got) in enumerate(zip(logits, output[begin:], strict=True), begin):
            best = int(scores.argmax())
            gap = float(scores[best] - scores[got])
            assert gap < TIE, f"prompt {index}, output token {place}: {got} lies {gap:.4f} below {best}"
            if got != best:
                ties.append(NearTie(index, place, best, got, gap))
        return ties


def _mask_layers(model: PreTrainedModel, windows: WindowPattern) -> None:
    p = torch.arange(model.config.max_position_embeddings, dtype=torch.int32)

    def hook(layer: int, n: int) -> torch.Tensor:
        query, key = p[:n, None], p[None, :n]
        seen = key <= query
        if not windows.is_full(layer):
            seen &= (key > query - windows.window) | (key < windows.sink_tokens)
        return torch.zeros(n, n).masked_fill(~seen, float("-inf"))[None, None]

    for i, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_pre_hook(
            lambda _module, args, kwargs, i=i: (
                args,
                {**kwargs, "attention_mask": hook(i, kwargs["hidden_states"].shape[1])},
            ),
            with_kwargs=True,
        )
